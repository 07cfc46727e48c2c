//! Loading: what is checked and registered before the first command runs.

use std::ffi::c_int;

use redis_module::{raw, RedisString, Status};

use super::api::{call, missing_function, Caller, Context, Level};
use super::inbox::Note;
use super::module::Module;
use super::{
    callbacks, config, data_type, dispatch, eviction, info_section, main_thread, propagation,
    register, slot_migration, writes,
};

/// The module's version as MODULE LIST shows it: 10203 is 1.2.3.
pub(crate) const VERSION: i32 = version_number(env!("CARGO_PKG_VERSION"));

/// The first version of the server that has all that is needed: 6.2.0, as the module API writes it.
const OLDEST_SERVER: c_int = 0x0006_0200;

/// From here on a call can have the rights of the client: 7.0.0.
const HAS_RIGHTS_IN_CALLS: c_int = 0x0007_0000;

/// From here on the server says when it looks for events: 7.0.0.
const SAYS_WHEN_IT_SLEEPS: c_int = 0x0007_0000;

/// From here on a timeout callback and a grant may meet: Redis 7.4.0 and, as it counts above it, Valkey 8.
const SAFE_TO_UNBLOCK: c_int = 0x0007_0400;

/// Registers the type and the commands. The server drops the module when this answers `Err`.
pub(crate) fn on_load(ctx: &redis_module::Context, args: &[RedisString]) -> Status {
    // SAFETY: the context is that of the load, which runs until this function returns.
    let Some(ctx) = (unsafe { Context::new(ctx.ctx.cast()) }) else {
        return Status::Err;
    };
    if missing_function().is_some() || server_version() < OLDEST_SERVER {
        ctx.log(
            Level::Warning,
            c"the server is too old: this module needs 6.2.0 or later",
        );
        return Status::Err;
    }
    if let Err(bad) = config::read_arguments(args.iter().map(RedisString::as_slice)) {
        ctx.log_of(Level::Warning, bad.of, bad.why);
        ctx.log(Level::Warning, config::BAD_ARGUMENTS);
        return Status::Err;
    }
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    let options = options as c_int | slot_migration::options(ctx);
    // SAFETY: the context is alive.
    //
    // With HANDLE_IO_ERRORS a broken payload is an error here and not the end of the server. Without the implicit signal a
    // command that is refused does not break a WATCH: what changes a key signals it. A replica may load a new data set beside the old
    // one (repl-diskless-load swapdb): nothing here knows of a key but the keyspace, and the fence clock only takes the larger. What atomic slot migration asks for stands in
    // `slot_migration`.
    unsafe { call!(RedisModule_SetModuleOptions(ctx.as_ptr(), options)) };
    if !data_type::register(ctx) || !register_commands(ctx) || !config::register(ctx) {
        return Status::Err;
    }
    ctx.detach();
    propagation::prepare(ctx);
    main_thread::mark();
    let module = Module::get();
    module.timer.set_callback(callbacks::on_timer);
    let may_unblock_by_timeout = server_version() >= SAFE_TO_UNBLOCK;
    module
        .blocked
        .set(Some(callbacks::of_blocked_client(may_unblock_by_timeout)));
    if !callbacks::subscribe(ctx) || !info_section::register(ctx) {
        return Status::Err;
    }
    module.fences.begin_ahead();
    module.inbox.leave(Note::SweepWanted);
    if server_version() >= SAYS_WHEN_IT_SLEEPS {
        callbacks::subscribe_to_clients(ctx);
    }
    writes::prepare(&mut Caller::new(ctx));
    eviction::warn(ctx);
    ctx.log(Level::Notice, c"locks are ready: LOCK.* and RWLOCK.*");
    Status::Ok
}

fn register_commands(ctx: Context<'_>) -> bool {
    let is_7_0 = server_version() >= HAS_RIGHTS_IN_CALLS;
    register::commands(ctx, &dispatch::COMMANDS)
        && (!is_7_0 || register::commands(ctx, &dispatch::COMMANDS_FROM_7_0))
}

fn server_version() -> c_int {
    // SAFETY: the function takes nothing and reads a number; `missing_function` has found it.
    unsafe { call!(RedisModule_GetServerVersion()) }
}

/// "1.2.3" as 10203.
const fn version_number(text: &str) -> i32 {
    let bytes = text.as_bytes();
    let (mut number, mut part, mut at) = (0i32, 0i32, 0usize);
    while at < bytes.len() {
        // In a constant an overflow is an error of the build.
        #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
        match bytes[at] {
            digit @ b'0'..=b'9' => part = part * 10 + (digit - b'0') as i32,
            b'.' => {
                number = (number + part) * 100;
                part = 0;
            }
            _ => break,
        }
        at = at.saturating_add(1);
    }
    number.saturating_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_number_per_place() {
        assert_eq!(version_number("1.2.3"), 10203);
        assert_eq!(version_number("0.1.0"), 100);
        assert_eq!(version_number("2.0.15-rc.1"), 20015);
    }
}
