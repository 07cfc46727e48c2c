//! The commands as the server calls them: which function runs for which specification.

use std::ffi::c_int;

use redis_module::raw;

use super::api::{Argv, Context};
use super::command_call::CommandCall;
use super::register::Handler;
use super::{execute, queries, replay};
use crate::command::spec::Spec;
use crate::command::{
    acquire, apply, apply_release, check, exec, info, log, macquire, release, renew, resetstat,
    rlock, top, wlock, writable,
};

/// Every command, with its handler.
pub(super) const COMMANDS: [(&Spec, Handler); 14] = [
    (
        &acquire::SPEC,
        handler!(|call| execute::take_hold(call, acquire::WANTED)),
    ),
    (
        &wlock::SPEC,
        handler!(|call| execute::take_hold(call, wlock::WANTED)),
    ),
    (
        &rlock::SPEC,
        handler!(|call| execute::take_hold(call, rlock::WANTED)),
    ),
    (
        &macquire::SPEC,
        handler!(super::macquire::run, super::macquire::name_keys),
    ),
    (&release::SPEC, handler!(execute::release)),
    (&renew::SPEC, handler!(execute::renew)),
    (&check::SPEC, handler!(queries::check)),
    (&info::SPEC, handler!(queries::info)),
    (&top::SPEC, handler!(super::top::run)),
    (&log::SPEC, handler!(super::forced_log::run)),
    (&resetstat::SPEC, handler!(queries::reset_stat)),
    (&apply::SPEC, handler!(replay::apply)),
    (&apply_release::SPEC, handler!(replay::apply_release)),
    (&writable::SPEC, handler!(queries::writable)),
];

/// Those that need Redis 7.0: before, a call has no rights of its client.
pub(super) const COMMANDS_FROM_7_0: [(&Spec, Handler); 1] = [(
    &exec::SPEC,
    handler!(super::exec::run, super::exec::name_keys),
)];

/// Makes the `extern "C"` function of a command from one that gets a [`CommandCall`]. The second function is that of a command which
/// the server also asks for its keys: it names them, if that is what it is called for.
macro_rules! handler {
    ($run:expr) => {
        handler!($run, |_, _| false)
    };
    ($run:expr, $name_keys:expr) => {{
        unsafe extern "C" fn handler(
            ctx: *mut raw::RedisModuleCtx,
            argv: *mut *mut raw::RedisModuleString,
            argc: c_int,
        ) -> c_int {
            // SAFETY: the server called the handler with these, and `run` returns before the handler does.
            unsafe {
                let name_keys: fn(Context<'_>, Argv<'_>) -> bool = $name_keys;
                let words = Argv::new(argv, argc);
                if Context::new(ctx).is_some_and(|ctx| name_keys(ctx, words)) {
                    return raw::REDISMODULE_OK as c_int;
                }
                CommandCall::run(ctx, argv, argc, $run)
            }
        }
        handler as Handler
    }};
}
use handler;
