//! A hold: the part that one token has in a lock.

use std::num::NonZeroU32;

use super::fence::Fence;
use super::time::Deadline;

/// How a hold relates to the other holds of its lock: how many holders it tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The only hold of the lock: that of a writer, or of a mutex.
    Exclusive,
    /// One of any number of shared holds: that of a reader.
    Shared,
    /// One of a limited number of holds: a permit of a semaphore.
    Counted(Limit),
}

/// The number of holders that a counted hold tolerates, itself included: 2 to 2^31 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(NonZeroU32);

impl Limit {
    /// The largest limit: 2^31 - 1.
    pub const MAX: u32 = (1 << 31) - 1;

    /// The limit `n`. `None` for 0, for 1, which is the exclusive mode, and above [`Limit::MAX`].
    pub const fn new(n: u32) -> Option<Self> {
        match NonZeroU32::new(n) {
            Some(limit) if n > 1 && n <= Self::MAX => Some(Self(limit)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl Mode {
    /// In the place of a number of holders: as many as there are.
    pub const ANY: u32 = u32::MAX;

    /// The mode of a hold that tolerates `n` holders. `None` for 0 and above [`Limit::MAX`].
    pub fn of_limit(n: u32) -> Option<Self> {
        match n {
            1 => Some(Self::Exclusive),
            n => Limit::new(n).map(Self::Counted),
        }
    }

    /// How many holders it tolerates, itself included: 1, the limit, or [`Mode::ANY`].
    pub const fn tolerates(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared => Self::ANY,
            Self::Counted(limit) => limit.get(),
        }
    }

    /// The limit of a counted hold.
    pub const fn limit(self) -> Option<Limit> {
        match self {
            Self::Counted(limit) => Some(limit),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// The mode's name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Counted(_) => "counted",
        }
    }
}

/// The part that one token has in a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The number given with the hold. A renewal, a repeated request and a conversion keep it.
    pub fence: Fence,
    /// When the hold ends by itself.
    pub deadline: Deadline,
    /// When the hold was first granted.
    pub since: Since,
}

/// When a hold was first granted, and a mark: the hold ends with a connection (LINGER). An instant
/// needs few of the 64 bits, so the mark takes no memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Since(u64);

impl Since {
    const LINGERS: u64 = 1 << 63;

    /// At `ms` milliseconds since the Unix epoch, without the mark.
    #[inline]
    pub const fn at(ms: u64) -> Self {
        Self(ms & !Self::LINGERS)
    }

    /// The same instant, with the mark or without it.
    #[inline]
    #[must_use]
    pub const fn marked(self, lingers: bool) -> Self {
        match lingers {
            true => Self(self.0 | Self::LINGERS),
            false => Self::at(self.0),
        }
    }

    /// Milliseconds since the Unix epoch.
    #[inline]
    pub const fn ms(self) -> u64 {
        self.0 & !Self::LINGERS
    }

    /// Whether the mark is there. Only a server whose holds must survive a promotion sets it.
    #[inline]
    pub const fn lingers(self) -> bool {
        self.0 & Self::LINGERS != 0
    }
}

impl std::fmt::Debug for Since {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.lingers() { " lingers" } else { "" };
        write!(f, "{}{mark}", self.ms())
    }
}

/// How many hold a lock, and how many all of them tolerate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The number of holders.
    pub holders: usize,
    /// The smallest number that any of them tolerates; [`Mode::ANY`] where there is none.
    pub tolerated: u32,
}

impl Occupancy {
    /// That of a lock which nobody holds.
    pub const NONE: Self = Self {
        holders: 0,
        tolerated: Mode::ANY,
    };

    /// The same holders, which tolerate no more than `n`.
    #[must_use]
    pub fn tolerating(self, n: u32) -> Self {
        Self {
            tolerated: self.tolerated.min(n),
            ..self
        }
    }

    /// Whether one more holder of this mode fits beside those.
    pub fn admits(self, mode: Mode) -> bool {
        let tolerated = self.tolerated.min(mode.tolerates());
        tolerated == Mode::ANY || usize::try_from(tolerated).is_ok_and(|most| self.holders < most)
    }

    /// The mode of the lock as a whole; `None` where nobody holds it.
    pub fn mode(self) -> Option<Mode> {
        let mode = Mode::of_limit(self.tolerated).unwrap_or(Mode::Shared);
        (self.holders > 0).then_some(mode)
    }

    /// Counts one more holder.
    pub fn add(&mut self, mode: Mode) {
        self.holders = self.holders.saturating_add(1);
        self.tolerated = self.tolerated.min(mode.tolerates());
    }
}
