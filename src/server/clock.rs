//! The clocks. The core is told wall-clock time, which is what the server's own ttls are measured with; how long a client waits is
//! measured by a clock that nobody can set.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis_module::raw;

use crate::lock::Now;

/// The time of the command that runs: the instant at which the server began it, where the server says that (7.2+), as it is for its own ttls. It
/// saves a look at the clock, and in a transaction or a script all commands have one time, as SET PX there has.
pub(super) fn of_command() -> Now {
    began().unwrap_or_else(now)
}

/// The time in the middle of a step that was at `now` before. In a script or a transaction that lasts, [`of_command`] may be long ago;
/// where the server does not say when it began, `now` is fresh unless the step `has_gone_on` since.
pub(super) fn meanwhile(now: Now, has_gone_on: bool) -> Now {
    if has_gone_on || began().is_some() {
        now.max(self::now())
    } else {
        now
    }
}

/// When the server began the command, script or transaction; `None` where it does not say.
fn began() -> Option<Now> {
    // SAFETY: the static is not written after the load; the function takes nothing and reads a number.
    let cached_us = unsafe { raw::RedisModule_CachedMicroseconds.map(|cached| cached()) };
    cached_us
        .and_then(|us| u64::try_from(us).ok())
        .map(Now::from_micros)
}

/// The time now. A clock before 1970 reads as 1970.
pub(super) fn now() -> Now {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let micros = since_epoch.as_secs().saturating_mul(1_000_000);
    Now::from_micros(micros.saturating_add(since_epoch.subsec_micros().into()))
}

/// Microseconds on a clock that only runs forward, since the first call.
pub(super) fn monotonic_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let running = START.get_or_init(Instant::now).elapsed();
    u64::try_from(running.as_micros()).unwrap_or(u64::MAX)
}
