//! How much may wait. A blocked client costs the server about 36 KB.

use super::setting::Setting;
use crate::server::api::Context;
use redis_lock_core::command::acquire::{Acquire, LONGEST_GRACE_MS};
use redis_lock_core::command::Error;
use redis_lock_core::engine::guard;
use redis_lock_core::wait::{Leaving, Limits};

const LONGEST_MS: i64 = LONGEST_GRACE_MS as i64;

static PER_KEY: Setting = Setting::number(c"max-waiters-per-key", 10_000, (0, 1_000_000));
static PER_SERVER: Setting = Setting::number(c"max-waiters", 10_000, (0, 1_000_000));
static ABSENT: Setting = Setting::number(c"max-absent", 1_000, (0, 10_000));
/// In milliseconds.
static KEEP: Setting = Setting::number(c"max-keep", 3_600_000, (0, LONGEST_MS));
/// In percent of the server's limit.
static SHARE: Setting = Setting::number(c"max-waiters-share", 50, (1, 100));
static BYTES: Setting = Setting::number(c"max-waiting-bytes", 64 << 20, (0, 1 << 40));
/// In milliseconds; 0 is no limit but the grammar's.
static TTL: Setting = Setting::number(c"max-ttl", 0, (0, 3_600_000));
/// In milliseconds.
static GUARD_SLACK: Setting = Setting::number(c"guard-slack", 5_000, (0, 3_600_000));
/// Servers of a group.
static GUARD_MEMBERS: Setting = Setting::number(c"guard-members", 3, (1, 99));
/// In milliseconds.
static GUARD_FRESH: Setting = Setting::number(c"guard-fresh", 3_000, (500, 60_000));

/// All limits.
pub(super) static LIMITS: [&Setting; 10] = [
    &PER_KEY,
    &PER_SERVER,
    &ABSENT,
    &KEEP,
    &SHARE,
    &BYTES,
    &TTL,
    &GUARD_SLACK,
    &GUARD_MEMBERS,
    &GUARD_FRESH,
];

/// The least value of `max-ttl` that is one. A guard of less would end within the second by which
/// the clocks of two servers may differ.
const LEAST_TTL_MS: i64 = 1_000;

/// After what the server waits with new grants.
pub(super) static GUARD: Setting =
    Setting::word(c"guard", [c"off", c"restart", c"failover", c"quorum"]);

/// The settings of the guard.
pub(in crate::server) fn guard() -> guard::Settings {
    let number = |limit: &Setting| u64::try_from(limit.get()).unwrap_or_default();
    guard::Settings {
        scope: match GUARD.get() {
            0 => guard::Scope::Off,
            1 => guard::Scope::Restart,
            2 => guard::Scope::Failover,
            _ => guard::Scope::Quorum,
        },
        max_ttl_ms: number(&TTL),
        slack_ms: number(&GUARD_SLACK),
        members: GUARD_MEMBERS.count(),
        fresh_ms: number(&GUARD_FRESH),
        #[cfg(feature = "fault-injection")]
        without: guard::Rule::planted(),
    }
}

/// Whether the settings contradict each other. The text says why.
pub(in crate::server) fn contradiction() -> Option<&'static str> {
    match (TTL.get(), GUARD.get()) {
        (0, 1..) => Some("lock.guard needs lock.max-ttl, the longest ttl of all locks"),
        (ttl, _) if (1..LEAST_TTL_MS).contains(&ttl) => {
            Some("lock.max-ttl must be 0 or at least 1000 milliseconds")
        }
        _ => None,
    }
}

/// Checks the length of a lease.
#[inline]
pub(in crate::server) fn check_ttl(ms: u64) -> Result<(), Error> {
    let most = TTL.get();
    match u64::try_from(most) {
        Ok(most) if most > 0 && ms > most => Err(Error::TtlTooLong),
        _ => Ok(()),
    }
}

/// The user against whom no share counts. On a server without other users it is everybody.
const EXEMPT: &[u8] = b"default";

/// Checks the grace of a request.
pub(in crate::server) fn check_grace(acquire: &Acquire<'_>) -> Result<(), Error> {
    match acquire.keep_ms() {
        Some(ms) if i64::from(ms) > KEEP.get() => Err(Error::GraceTooLong),
        _ => Ok(()),
    }
}

/// How requests leave at an instant of the monotonic clock.
pub(in crate::server) fn leaving(now_us: u64) -> Leaving {
    Leaving {
        now_us,
        absent_per_key: ABSENT.count(),
    }
}

/// The limits of what waits, and the user whose share counts. `waiting` is how much waits on the
/// server.
///
/// The server takes a while to name the user. It is not asked while so little waits that it does
/// not matter: a hundredth of a share, which is left out of the share in return.
pub(in crate::server) fn of_request(
    ctx: Context<'_>,
    waiting: usize,
) -> (Limits, Option<Box<[u8]>>) {
    let per_server = PER_SERVER.count();
    let share = per_server.saturating_mul(SHARE.count()).div_ceil(100);
    let unasked = share / 100;
    let user = match waiting >= unasked {
        true => Some(ctx.user_name()).filter(|user| **user != *EXEMPT),
        false => None,
    };
    let limits = Limits {
        per_key: PER_KEY.count(),
        per_server,
        absent_per_key: ABSENT.count(),
        per_user: share.saturating_sub(unasked),
        bytes: BYTES.count(),
    };
    (limits, user)
}
