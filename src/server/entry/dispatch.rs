//! The commands as the server calls them: which function runs for which one.

use std::ffi::c_int;

use redis_module::raw;

use super::exec;
use super::forced_log;
use super::locking;
use super::queries;
use super::register::Handler;
use super::replay;
use super::top;
use crate::server::api::{Argv, Context};
use crate::server::host::module::Task;
use redis_lock_core::command::{acquire, rlock, wlock, Command, Error};

/// The function that the server calls for a command.
pub(in crate::server) fn handler_of(command: Command) -> Handler {
    match command {
        Command::Acquire => handler!(|task| locking::take_hold(task, acquire::WANTED)),
        Command::Wlock => handler!(|task| locking::take_hold(task, wlock::WANTED)),
        Command::Rlock => handler!(|task| locking::take_hold(task, rlock::WANTED)),
        Command::Macquire => handler!(locking::take_all, locking::name_keys),
        Command::Release => handler!(locking::release),
        Command::Cancel => handler!(locking::cancel),
        Command::Renew => handler!(locking::renew),
        Command::Check => handler!(locking::check),
        Command::Exec => handler!(exec::run, exec::name_keys),
        Command::Info => handler!(queries::info),
        Command::Top => handler!(top::run),
        Command::Log => handler!(forced_log::run),
        Command::ResetStat => handler!(queries::reset_stat),
        Command::Apply => handler!(replay::apply),
        Command::ApplyRelease => handler!(replay::apply_release),
        Command::Writable => handler!(|_| Err(Error::ModuleOnly), queries::answer_writable),
        Command::Guard => handler!(replay::guard),
        Command::Once => handler!(locking::take_once),
    }
}

/// Makes the `extern "C"` function of a command from one that gets a [`Task`]. The second function
/// runs first, without a task, and says whether the call is done. So a command names its keys, if
/// the server calls it for that.
macro_rules! handler {
    ($run:expr) => {
        handler!($run, |_, _| false)
    };
    ($run:expr, $answers:expr) => {{
        unsafe extern "C" fn handler(
            ctx: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: the server called the handler with these, and `run` returns before the
            // handler does.
            unsafe {
                let answers: fn(Context<'_>, Argv<'_>) -> bool = $answers;
                let words = Argv::new(argv, argc);
                if Context::new(ctx).is_some_and(|ctx| answers(ctx, words)) {
                    return raw::REDISMODULE_OK as c_int;
                }
                Task::run(ctx, words, $run);
                raw::REDISMODULE_OK as c_int
            }
        }
        handler as Handler
    }};
}
use handler;
