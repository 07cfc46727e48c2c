//! Loading: the checks and registrations before the first command runs.

use std::ffi::c_int;
use std::ops::RangeInclusive;

use redis_module::{raw, RedisString, Status};

use crate::command::Command;
use crate::engine::guard::{GuardEvent, Reason};
use crate::engine::printable::line_of;
use crate::server::api::clock;
use crate::server::api::main_thread;
use crate::server::api::{call, is_7_0, missing_function, server_version, Caller, Context, Level};
use crate::server::clients::blocked_client::Note;
use crate::server::cluster::slot_migration;
use crate::server::entry::callbacks;
use crate::server::entry::data_type;
use crate::server::entry::dispatch;
use crate::server::entry::info_section;
use crate::server::entry::register;
use crate::server::host::module::Module;
use crate::server::replication::propagation;
use crate::server::replication::writes;
use crate::server::settings::config;
use crate::server::settings::eviction;
use crate::server::settings::limits;

/// The module's version as MODULE LIST shows it: 10203 is 1.2.3.
pub(crate) const VERSION: i32 = version_number(env!("CARGO_PKG_VERSION"));

/// The oldest server with all functions that the module needs: 6.2.0, in the notation of the module
/// API.
const OLDEST_SERVER: c_int = 0x0006_0200;

/// These end by an assertion when a client is lost that is blocked in another database than 0,
/// because the module listens to clients, and by a fault when a call that the module makes asks for
/// its user: <https://github.com/redis/redis/pull/11500>,
/// <https://github.com/redis/redis/pull/10966>.
const BROKEN_SERVERS: RangeInclusive<c_int> = 0x0007_0000..=0x0007_0005;

/// From Redis 7.4.0 and Valkey 8 on a timeout callback and a grant may coincide. Valkey 8 has the
/// higher number.
const SAFE_TO_UNBLOCK: c_int = 0x0007_0400;

/// Registers the type and the commands. The server unloads the module if this returns `Err`.
pub(crate) fn on_load(ctx: &redis_module::Context, args: &[RedisString]) -> Status {
    // SAFETY: the context is that of the load, which lasts until this function returns.
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
    if BROKEN_SERVERS.contains(&server_version()) {
        let why = c"Redis 7.0.0 to 7.0.5 may crash with modules: this module needs 7.0.6 or later";
        ctx.log(Level::Warning, why);
        return Status::Err;
    }
    if let Err(bad) = config::read_arguments(args.iter().map(RedisString::as_slice)) {
        ctx.log_escaped(Level::Warning, &line_of(bad));
        ctx.log(Level::Warning, config::BAD_ARGUMENTS);
        return Status::Err;
    }
    let options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    let options = options as c_int | slot_migration::options(ctx);
    // SAFETY: the context is alive.
    //
    // With HANDLE_IO_ERRORS a broken payload is an error, and the server does not abort. Without
    // the implicit signal a refused command does not break a WATCH; `commit` signals each change of
    // a key. A replica may load a new data set beside the old one (repl-diskless-load swapdb),
    // because only the keyspace has the locks, and the fence clock takes the larger of two fences.
    // `slot_migration` explains its option.
    unsafe { call!(RedisModule_SetModuleOptions(ctx.as_ptr(), options)) };
    if !data_type::register(ctx) || !register_commands(ctx) || !config::register(ctx) {
        return Status::Err;
    }
    if let Some(why) = limits::contradiction() {
        let line = line_of(format!("bad settings: {why}"));
        ctx.log_escaped(Level::Warning, &line);
        return Status::Err;
    }
    ctx.detach();
    propagation::prepare(ctx);
    main_thread::mark();
    let module = Module::get();
    if ctx.is_cluster() {
        module.prepare_for_cluster();
    }
    module.timer.set_callback(callbacks::on_timer);
    callbacks::prepare_bindings();
    let may_unblock_by_timeout = server_version() >= SAFE_TO_UNBLOCK;
    module
        .blocked
        .set(Some(callbacks::of_blocked_client(may_unblock_by_timeout)));
    if !callbacks::subscribe(ctx) || !info_section::register(ctx) {
        return Status::Err;
    }
    module.shared.fences.begin_ahead(clock::now());
    module.shared.inbox.leave(Note::SweepWanted);
    let begins = GuardEvent::Began(Reason::Restart, clock::boot_us(), limits::guard());
    module.shared.inbox.leave(Note::Guard(begins));
    writes::prepare(&mut Caller::new(ctx));
    eviction::warn(ctx);
    ctx.log(Level::Notice, c"locks are ready: LOCK.* and RWLOCK.*");
    Status::Ok
}

fn register_commands(ctx: Context<'_>) -> bool {
    register::category(ctx);
    let mut commands = Command::ALL.iter().filter(|c| is_7_0() || !c.needs_7_0());
    commands.all(|c| register::command(ctx, c.spec(), dispatch::handler_of(*c)))
}

/// Turns "1.2.3" into 10203.
const fn version_number(text: &str) -> i32 {
    let bytes = text.as_bytes();
    let (mut number, mut part, mut at) = (0i32, 0i32, 0usize);
    while at < bytes.len() {
        // In a constant an overflow is a build error.
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
