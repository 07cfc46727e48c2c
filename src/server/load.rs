//! Loading: the checks and registrations before the first command runs.

use std::ffi::{c_int, CStr, CString};

use redis_module::{raw, RedisString, Status};

use crate::server::api::clock;
use crate::server::api::main_thread;
use crate::server::api::{
    call, missing_function, optional, server_version, Context, Level, ServerInfo,
};
use crate::server::clients::blocked_client::Note;
use crate::server::cluster::slot_migration;
use crate::server::entry::callbacks;
use crate::server::entry::data_type;
use crate::server::entry::dispatch;
use crate::server::entry::info_section;
use crate::server::entry::register;
use crate::server::host::module::Module;
use crate::server::replication::propagation;
use crate::server::settings::config;
use crate::server::settings::eviction;
use crate::server::settings::limits;
use redis_lock_core::command::Command;
use redis_lock_core::engine::guard::{GuardEvent, Reason};
use redis_lock_core::engine::printable::line_of;

/// The module's version as MODULE LIST shows it: 10203 is 1.2.3.
pub(crate) const VERSION: i32 = version_number(env!("CARGO_PKG_VERSION"));

/// The oldest server that the module runs on, in the notation of the module API: 7.0.6.
///
/// Those before, from 7.0.0 on, end by an assertion when a client is lost that is blocked in
/// another database than 0, because the module listens to clients, and by a fault when a call that
/// the module makes asks for its user: <https://github.com/redis/redis/pull/11500>,
/// <https://github.com/redis/redis/pull/10966>.
const OLDEST_SERVER: c_int = 0x0007_0006;

/// Why the module does not run on a server that is too old.
const TOO_OLD: &CStr =
    c"the server is too old: this module needs Redis 7.0.6 or later, or Valkey 7.2 or later";

/// Why it does not run on KeyDB.
const KEYDB: &CStr = c"KeyDB lacks functions that this module needs: use Redis 7.0.6 or later, or Valkey 7.2 or later";

/// From Redis 7.4.0 and Valkey 8 on a timeout callback and a grant may coincide. Valkey 8 has the
/// higher number.
const SAFE_TO_UNBLOCK: c_int = 0x0007_0400;

/// Registers the type and the commands. The server unloads the module if this returns `Err`.
pub(crate) fn on_load(ctx: &redis_module::Context, args: &[RedisString]) -> Status {
    // SAFETY: the context is that of the load, which lasts until this function returns.
    let Some(ctx) = (unsafe { Context::new(ctx.ctx.cast()) }) else {
        return Status::Err;
    };
    if let Some(why) = server_of(ctx).map_or(Some(TOO_OLD), |server| refusal(&server)) {
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
    // `slot_migration` explains its option. HANDLE_FORKLESS of Valkey 9.2 is not set: a lock
    // changes in place, and another thread would save it meanwhile.
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
    eviction::warn(ctx);
    ctx.log(Level::Notice, c"locks are ready: LOCK.* and RWLOCK.*");
    Status::Ok
}

/// What decides whether the module runs on a server.
struct Described {
    /// Its version in the notation of the module API.
    version: c_int,
    /// The version of Redis that it is compatible with, in the words of INFO.
    redis_version: Vec<u8>,
    is_keydb: bool,
    lacks_functions: bool,
}

/// What this server says of itself. `None` where it cannot be asked.
fn server_of(ctx: Context<'_>) -> Option<Described> {
    optional!(RedisModule_GetServerVersion)?;
    optional!(RedisModule_GetServerInfo)?;
    let field = |section, name| ServerInfo::field_of(ctx, section, name);
    Some(Described {
        version: server_version(),
        redis_version: field(c"server", c"redis_version").map_or(Vec::new(), CString::into_bytes),
        // Only KeyDB has this section. Its releases call themselves 6.3, and other builds
        // 255.255.255.
        is_keydb: field(c"keydb", c"mvcc_depth").is_some(),
        lacks_functions: missing_function().is_some(),
    })
}

/// Why the module does not run on a server; `None` where it does. A fork may count its versions
/// from 1, so the higher of the two versions decides.
fn refusal(server: &Described) -> Option<&'static CStr> {
    let compatible_with = redis_version(&server.redis_version).unwrap_or_default();
    if server.is_keydb {
        return Some(KEYDB);
    }
    let is_too_old = server.version.max(compatible_with) < OLDEST_SERVER;
    (is_too_old || server.lacks_functions).then_some(TOO_OLD)
}

/// Turns "7.0.15" into the notation of the module API. `None` if it is not of this form.
fn redis_version(text: &[u8]) -> Option<c_int> {
    let numbers = std::str::from_utf8(text).ok()?.split('.');
    let numbers: Vec<u8> = numbers.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let [major, minor, patch] = *numbers.first_chunk()?;
    Some(c_int::from_be_bytes([0, major, minor, patch]))
}

fn register_commands(ctx: Context<'_>) -> bool {
    register::category(ctx);
    let mut commands = Command::ALL.iter();
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
    fn servers_before_7_0_6_and_keydb_are_refused() {
        let refused = |redis_version: &str, version, is_keydb, lacks_functions| {
            refusal(&Described {
                version,
                redis_version: redis_version.into(),
                is_keydb,
                lacks_functions,
            })
        };
        for (redis_version, version, why) in [
            ("6.2.14", 0x0006_020e, Some(TOO_OLD)),
            ("6.9.242", 0x0006_09f2, Some(TOO_OLD)),
            ("7.0.5", 0x0007_0005, Some(TOO_OLD)),
            ("7.0.6", 0x0007_0006, None),
            ("8.6.3", 0x0008_0603, None),
            // Valkey 9.1.2, a build from source, and two forks.
            ("7.2.4", 0x0009_0102, None),
            ("255.255.255", 0x00ff_ffff, None),
            ("unstable", 0x00ff_ffff, None),
            ("7.2.4", 0x0001_0000, None),
            ("7.0.5", 0x0001_0000, Some(TOO_OLD)),
        ] {
            let why_not = refused(redis_version, version, false, false);
            assert_eq!(why_not, why, "{redis_version}");
            let lacking = refused(redis_version, version, false, true);
            assert_eq!(lacking, Some(TOO_OLD), "{redis_version}");
        }
        for (redis_version, version) in [("6.3.4", 0x0006_0304), ("255.255.255", 0x00ff_ffff)] {
            for lacks_functions in [false, true] {
                let why = refused(redis_version, version, true, lacks_functions);
                assert_eq!(why, Some(KEYDB), "{redis_version}");
            }
        }
    }

    #[test]
    fn a_version_is_read_from_three_numbers() {
        assert_eq!(redis_version(b"7.0.15"), Some(0x0007_000f));
        for other in ["", "7", "7.0", "7.0.x", "7.0.256", "7..1", "v7.0.1"] {
            assert_eq!(redis_version(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn the_version_is_a_number_per_place() {
        assert_eq!(version_number("1.2.3"), 10203);
        assert_eq!(version_number("0.1.0"), 100);
        assert_eq!(version_number("2.0.15-rc.1"), 20015);
    }
}
