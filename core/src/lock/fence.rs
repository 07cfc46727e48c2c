//! The fence clock: numbers that only grow, so that a resource can refuse a late owner.
//!
//! The idea of the fencing token is Martin Kleppmann's ("How to do distributed locking", 2016).
//!
//! The rule `max(last + 1, now in µs)` makes the numbers follow the clock. A replica that is
//! promoted without the newest effects still gives larger numbers, unless its clock is behind the
//! old primary's by more than the failover took. A clock that is set back does no harm to a server
//! that remembers its last number.

use super::time::Now;
use crate::planted::planted;

/// A number given with a hold. It is greater than 0, below 2^53 (exact as a JSON or Lua number),
/// and larger than all numbers given before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// The largest fence: 2^53 - 1. As microseconds since the Unix epoch it is in the year 2255.
    pub const MAX: u64 = (1 << 53) - 1;

    /// The fence `n`. `None` for 0 and above [`Fence::MAX`].
    pub const fn new(n: u64) -> Option<Self> {
        if n == 0 || n > Self::MAX {
            return None;
        }
        Some(Self(n))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A fence and a mark in 64 bits. The fence needs 53 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MarkedFence(u64);

impl MarkedFence {
    const MARK: u64 = 1 << 63;

    pub(super) const fn new(fence: Fence, marked: bool) -> Self {
        Self(if marked {
            fence.0 | Self::MARK
        } else {
            fence.0
        })
    }

    pub(super) const fn fence(self) -> Fence {
        Fence(self.0 & !Self::MARK)
    }

    pub(super) const fn is_marked(self) -> bool {
        self.0 & Self::MARK != 0
    }
}

/// Gives fences. A server has one clock for all keys of all databases.
#[derive(Debug, Default)]
pub struct FenceClock {
    /// The largest fence given or seen, 0 if there was none. It never goes down.
    last: u64,
}

impl FenceClock {
    /// The fence for a hold granted at `now`. `None` if no larger one is left below 2^53.
    #[inline]
    pub fn next(&mut self, now: Now) -> Option<Fence> {
        let by_clock = if planted("fences-begin-again") {
            0
        } else {
            now.us()
        };
        let n = self.last.saturating_add(1).max(by_clock);
        let fence = Fence::new(n)?;
        self.last = n;
        Some(fence)
    }

    /// Notes a fence that another server has given, or this one before a restart.
    pub fn observe(&mut self, fence: Fence) {
        self.last = self.last.max(fence.get());
    }

    /// The largest fence given or seen, if any.
    pub const fn last(&self) -> Option<Fence> {
        Fence::new(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_clock_and_never_goes_back() {
        let mut clock = FenceClock::default();
        assert_eq!(clock.last(), None);
        assert_eq!(clock.next(Now::from_micros(1000)).unwrap().get(), 1000);
        assert_eq!(clock.next(Now::from_micros(1000)).unwrap().get(), 1001);
        assert_eq!(clock.next(Now::from_micros(5)).unwrap().get(), 1002);
        assert_eq!(clock.next(Now::from_micros(2000)).unwrap().get(), 2000);
    }

    #[test]
    fn starts_above_zero_even_at_the_epoch() {
        assert_eq!(
            FenceClock::default()
                .next(Now::from_micros(0))
                .unwrap()
                .get(),
            1
        );
    }

    #[test]
    fn gives_more_than_it_has_seen() {
        let mut clock = FenceClock::default();
        clock.observe(Fence::new(500).unwrap());
        clock.observe(Fence::new(400).unwrap());
        assert_eq!(clock.next(Now::from_micros(3)).unwrap().get(), 501);
    }

    #[test]
    fn is_exhausted_at_the_end_and_never_repeats_a_fence() {
        let mut clock = FenceClock::default();
        clock.observe(Fence::new(Fence::MAX - 1).unwrap());
        assert_eq!(clock.next(Now::from_micros(1)).unwrap().get(), Fence::MAX);
        assert_eq!(clock.next(Now::from_micros(1)), None);
        assert_eq!(clock.last().unwrap().get(), Fence::MAX);
        assert_eq!(Fence::new(0), None);
        assert_eq!(Fence::new(Fence::MAX + 1), None);
    }
}
