//! How much may wait. A blocked client costs the server about 18 KB on 6.2 and 36 KB on 7.0 and
//! later.

use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::command::acquire::{Acquire, LONGEST_GRACE_MS};
use crate::command::Error;
use crate::engine::guard;
use crate::server::api::Context;
use crate::wait::{Leaving, Limits};

/// A limit. It is set at load, and from 7.0 on also by CONFIG SET.
#[derive(Debug)]
pub(in crate::server) struct ConfigLimit {
    /// Its name as a load argument. As a setting of CONFIG it has the module's name as a prefix.
    pub(in crate::server) name: &'static CStr,
    value: AtomicI64,
    pub(in crate::server) min: i64,
    pub(in crate::server) max: i64,
    /// What the log says of a value out of bounds.
    pub(in crate::server) range: &'static CStr,
}

const PLACES: &CStr = c"its value is not an integer from 0 to 1000000";

static PER_KEY: ConfigLimit = ConfigLimit {
    name: c"max-waiters-per-key",
    value: AtomicI64::new(10_000),
    min: 0,
    max: 1_000_000,
    range: PLACES,
};
static PER_SERVER: ConfigLimit = ConfigLimit {
    name: c"max-waiters",
    value: AtomicI64::new(10_000),
    min: 0,
    max: 1_000_000,
    range: PLACES,
};
static ABSENT: ConfigLimit = ConfigLimit {
    name: c"max-absent",
    value: AtomicI64::new(1_000),
    min: 0,
    max: 1_000_000,
    range: PLACES,
};
/// In milliseconds.
static KEEP: ConfigLimit = ConfigLimit {
    name: c"max-keep",
    value: AtomicI64::new(3_600_000),
    min: 0,
    max: LONGEST_GRACE_MS as i64,
    range: c"its value is not an integer from 0 to 3600000",
};
/// In percent of the server's limit.
static SHARE: ConfigLimit = ConfigLimit {
    name: c"max-waiters-share",
    value: AtomicI64::new(50),
    min: 1,
    max: 100,
    range: c"its value is not an integer from 1 to 100",
};
static BYTES: ConfigLimit = ConfigLimit {
    name: c"max-waiting-bytes",
    value: AtomicI64::new(64 << 20),
    min: 0,
    max: 1 << 40,
    range: c"its value is not an integer from 0 to 1099511627776",
};

/// In milliseconds; 0 is no limit but the grammar's.
static TTL: ConfigLimit = ConfigLimit {
    name: c"max-ttl",
    value: AtomicI64::new(0),
    min: 0,
    max: 3_600_000,
    range: c"its value is not an integer from 0 to 3600000",
};
/// In milliseconds.
static GUARD_SLACK: ConfigLimit = ConfigLimit {
    name: c"guard-slack",
    value: AtomicI64::new(5_000),
    min: 0,
    max: 3_600_000,
    range: c"its value is not an integer from 0 to 3600000",
};

/// Servers of a group.
static GUARD_MEMBERS: ConfigLimit = ConfigLimit {
    name: c"guard-members",
    value: AtomicI64::new(3),
    min: 1,
    max: 99,
    range: c"its value is not an integer from 1 to 99",
};
/// In milliseconds.
static GUARD_FRESH: ConfigLimit = ConfigLimit {
    name: c"guard-fresh",
    value: AtomicI64::new(3_000),
    min: 500,
    max: 60_000,
    range: c"its value is not an integer from 500 to 60000",
};
/// Of a thousand.
static GUARD_DRIFT: ConfigLimit = ConfigLimit {
    name: c"guard-drift",
    value: AtomicI64::new(10),
    min: 0,
    max: 100,
    range: c"its value is not an integer from 0 to 100",
};

/// All limits.
pub(in crate::server) static ALL: [&ConfigLimit; 11] = [
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
    &GUARD_DRIFT,
];

/// The least value of `max-ttl` that is one. A guard of less would end within the second by which
/// the clocks of two servers may differ.
const LEAST_TTL_MS: i64 = 1_000;

/// After what the server waits with new grants.
pub(in crate::server) static GUARD: Choice = Choice {
    name: c"guard",
    value: AtomicI64::new(0),
    words: [c"off", c"restart", c"failover", c"quorum"],
    why: c"its value is not off, restart, failover or quorum",
};

/// A setting whose value is one of some words.
#[derive(Debug)]
pub(in crate::server) struct Choice {
    /// Its name as a load argument.
    pub(in crate::server) name: &'static CStr,
    value: AtomicI64,
    pub(in crate::server) words: [&'static CStr; 4],
    /// What the log says of another word.
    pub(in crate::server) why: &'static CStr,
}

impl Choice {
    /// The number of its word.
    pub(in crate::server) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// The settings of the guard.
pub(in crate::server) fn guard() -> guard::Settings {
    let number = |limit: &ConfigLimit| u64::try_from(limit.get()).unwrap_or_default();
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
        drift: number(&GUARD_DRIFT),
        #[cfg(test)]
        without: None,
    }
}

/// Whether the settings contradict each other. The text says why.
pub(in crate::server) fn contradiction() -> Option<&'static CStr> {
    match (TTL.get(), GUARD.get()) {
        (0, 1..) => Some(c"lock.guard needs lock.max-ttl, the longest ttl of all locks"),
        (ttl, _) if (1..LEAST_TTL_MS).contains(&ttl) => {
            Some(c"lock.max-ttl must be 0 or at least 1000 milliseconds")
        }
        _ => None,
    }
}

/// Checks the length of a lease.
///
/// # Errors
/// If it is longer than it may be.
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

impl ConfigLimit {
    pub(in crate::server) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets it. False if `value` is out of bounds.
    pub(in crate::server) fn set(&self, value: i64) -> bool {
        let fits = (self.min..=self.max).contains(&value);
        if fits {
            self.value.store(value, Ordering::Relaxed);
        }
        fits
    }

    fn count(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(usize::MAX)
    }
}

/// Checks the grace of a request.
///
/// # Errors
/// If it is longer than it may be.
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
        true => ctx.user_name().filter(|user| **user != *EXEMPT),
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
