//! Instants and durations. Instants are wall-clock times, in milliseconds since the Unix epoch, as
//! the expiry times of the server's keys are.

use crate::planted::planted;

/// The instant at which a decision is made.
///
/// It is kept in microseconds since the Unix epoch, because fences follow the microsecond.
/// Deadlines need milliseconds only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    us: u64,
}

impl Now {
    /// The instant `us` microseconds after the Unix epoch.
    pub const fn from_micros(us: u64) -> Self {
        Self { us }
    }

    /// The instant `ms` milliseconds after the Unix epoch, or the latest instant if that overflows.
    pub const fn from_millis(ms: u64) -> Self {
        Self {
            us: ms.saturating_mul(1000),
        }
    }

    /// Whole milliseconds since the Unix epoch.
    pub const fn ms(self) -> u64 {
        self.us / 1000
    }

    /// Microseconds since the Unix epoch.
    pub const fn us(self) -> u64 {
        self.us
    }
}

/// How long a hold lives: 1 ms to 2^48 ms (about 8,900 years).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl {
    ms: u64,
}

impl Ttl {
    /// The longest ttl in milliseconds.
    pub const MAX_MS: u64 = 1 << 48;
    /// The longest ttl.
    pub const MAX: Self = Self { ms: Self::MAX_MS };

    /// A ttl of `ms` milliseconds. `None` if it is 0 or longer than [`Ttl::MAX_MS`].
    pub const fn from_millis(ms: u64) -> Option<Self> {
        if ms == 0 || ms > Self::MAX_MS {
            return None;
        }
        Some(Self { ms })
    }

    /// Milliseconds.
    pub const fn ms(self) -> u64 {
        self.ms
    }
}

/// The last millisecond in which a hold still lives, since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    ms: u64,
}

impl Deadline {
    /// The latest deadline, in milliseconds since the Unix epoch. No `now + ttl` comes near it, and
    /// it fits every signed millisecond field of the server.
    pub const MAX_MS: u64 = 1 << 52;

    /// The deadline of a hold that is granted or renewed at `now` with this ttl.
    pub fn after(now: Now, ttl: Ttl) -> Self {
        let parts = if planted("leases-are-cut") { 2 } else { 1 };
        let ms = now.ms().saturating_add(ttl.ms.div_euclid(parts));
        Self {
            ms: if ms > Self::MAX_MS { Self::MAX_MS } else { ms },
        }
    }

    /// The deadline `ms` milliseconds after the Unix epoch. `None` above [`Deadline::MAX_MS`].
    pub const fn from_millis(ms: u64) -> Option<Self> {
        if ms > Self::MAX_MS {
            return None;
        }
        Some(Self { ms })
    }

    /// Milliseconds since the Unix epoch.
    pub const fn ms(self) -> u64 {
        self.ms
    }

    /// Whether the deadline has passed at `now_ms`. At the deadline itself the hold still lives, as
    /// a key of the server does.
    pub const fn is_over(self, now_ms: u64) -> bool {
        now_ms > self.ms
    }

    /// Milliseconds from `now_ms` to the deadline, or 0 if it has passed.
    pub const fn remaining_ms(self, now_ms: u64) -> u64 {
        self.ms.saturating_sub(now_ms)
    }
}
