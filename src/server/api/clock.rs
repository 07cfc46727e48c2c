//! The clocks. The core gets wall-clock time, because the server's own ttls use it. Waits are
//! measured by a monotonic clock, which nobody can set.

use redis_module::raw;

use super::optional;
use redis_lock_core::lock::Now;

/// Elsewhere the monotonic clock goes on, too.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// The time of the running command. From 7.2 on it is the instant at which the server began the
/// command, as for its own ttls. That saves a system call. All commands of a transaction or a
/// script then have the same time, as SET PX has there.
pub(in crate::server) fn of_command() -> Now {
    began().unwrap_or_else(now)
}

/// The time later in a step that began at `now`. In a long script or transaction [`of_command`] may
/// be long ago. Before 7.2 `now` was read in this step, so it is still right unless the step
/// `has_gone_on` since.
pub(in crate::server) fn meanwhile(now: Now, has_gone_on: bool) -> Now {
    if has_gone_on || began().is_some() {
        now.max(self::now())
    } else {
        now
    }
}

/// When the server began the command, script or transaction. `None` before 7.2.
fn began() -> Option<Now> {
    // SAFETY: the function takes nothing and reads a number.
    let cached_us = optional!(RedisModule_CachedMicroseconds).map(|cached| unsafe { cached() });
    cached_us
        .and_then(|us| u64::try_from(us).ok())
        .map(Now::from_micros)
}

/// The time now. A clock before 1970 reads as 1970.
pub(in crate::server) fn now() -> Now {
    Now::from_micros(read_us(libc::CLOCK_REALTIME))
}

/// Microseconds on a clock that goes on while the machine is suspended.
pub(in crate::server) fn boot_us() -> u64 {
    read_us(BOOT_CLOCK)
}

/// Microseconds on the monotonic clock.
pub(in crate::server) fn monotonic_us() -> u64 {
    read_us(libc::CLOCK_MONOTONIC)
}

/// Reads a clock of the system. The standard library takes its instants apart into seconds and
/// nanoseconds twice, which takes as long as the rest of a grant's bookkeeping.
fn read_us(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure is written to, which is alive. No system is known that refuses these
    // clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    let micros = nanos.div_euclid(1_000);
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}
