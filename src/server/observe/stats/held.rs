//! Gauges of the locks and holds that exist.
//!
//! A hold is counted as long as it is part of a value: from the moment a lock is created or loaded
//! until it is freed. So it does not matter how a value comes to a key or leaves it. The numbers
//! are those of LOCK.INFO over all keys of all databases, with these exceptions:
//!
//! - A hold that is over is counted until it is dropped. The server drops it with its key, when a
//!   command touches the key or the server finds it (within some tens of milliseconds, as with
//!   every key; a replica waits for its primary). Beside other shared holds it is dropped by the
//!   next change of the lock.
//! - A value that the server frees on another thread (FLUSHALL ASYNC, UNLINK of a lock with more
//!   than 64 holds) is counted until that is done.
//! - A replica that loads a data set beside the old one (`repl-diskless-load swapdb`) counts both,
//!   until it drops one of them.

use std::sync::atomic::{AtomicU64, Ordering};

use redis_lock_core::lock::{Lock, Mode};

/// Numbers of locks and holds: locks with an exclusive hold, of which each has one; locks with one
/// shared hold or more and no counted one, and the holds of these; locks with one counted hold or
/// more, and the holds of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Held([u64; 5]);

impl Held {
    /// The numbers for one lock, from its mode and its number of holds.
    #[inline]
    fn of((mode, holds): (Mode, usize)) -> Self {
        let holds = u64::try_from(holds).unwrap_or_default();
        Self(match mode {
            Mode::Exclusive => [1, 0, 0, 0, 0],
            Mode::Shared => [0, 1, holds, 0, 0],
            Mode::Counted(_) => [0, 0, 0, 1, holds],
        })
    }

    /// The numbers for the lock under a key, if there is one.
    pub(in crate::server) fn of_key(lock: Option<&Lock>) -> Self {
        lock.map_or(Self::default(), |lock| Self::of((lock.mode(), lock.len())))
    }

    /// The sum of both.
    pub(in crate::server) fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The difference of both.
    pub(in crate::server) fn minus(self, part: Self) -> Self {
        self.with(part, u64::saturating_sub)
    }

    fn with(mut self, other: Self, of_both: impl Fn(u64, u64) -> u64) -> Self {
        for (n, other) in self.0.iter_mut().zip(other.0) {
            *n = of_both(*n, other);
        }
        self
    }

    /// The numbers of exclusive, shared and counted holds.
    pub(in crate::server) const fn by_mode(self) -> [u64; 3] {
        let [exclusive, _, shared, _, counted] = self.0;
        [exclusive, shared, counted]
    }

    /// The number of holds.
    pub(in crate::server) fn holds(self) -> u64 {
        self.by_mode().into_iter().fold(0, u64::saturating_add)
    }

    /// The number of locks.
    pub(in crate::server) const fn keys(self) -> u64 {
        let [exclusive, shared_keys, _, counted_keys, _] = self.0;
        let single = exclusive.saturating_add(shared_keys);
        single.saturating_add(counted_keys)
    }
}

/// Sums of one group of threads. They wrap around: only the total of both groups has a meaning.
struct Sums([AtomicU64; 5]);

impl Sums {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 5])
    }

    /// Counts by a load and a store. That is enough if only one thread writes.
    #[inline]
    fn count(&self, held: Held, change: impl Fn(u64, u64) -> u64) {
        self.each(held, |sum, n| {
            sum.store(change(sum.load(Ordering::Relaxed), n), Ordering::Relaxed);
        });
    }

    #[inline]
    fn each(&self, held: Held, act: impl Fn(&AtomicU64, u64)) {
        for (sum, n) in self.0.iter().zip(&held.0) {
            if *n > 0 {
                act(sum, *n);
            }
        }
    }

    fn now(&self) -> Held {
        Held(self.0.each_ref().map(|sum| sum.load(Ordering::Relaxed)))
    }
}

/// Only the main thread writes it.
static MAIN: Sums = Sums::new();
/// All other threads that free values write it.
static OTHERS: Sums = Sums::new();

/// Notes that a lock has been created or loaded as a value.
pub(in crate::server) fn created(lock: &Lock) {
    MAIN.count(Held::of((lock.mode(), lock.len())), u64::wrapping_add);
}

/// Notes that a value has changed: its mode and its number of holds.
pub(in crate::server) fn changed(before: (Mode, usize), after: (Mode, usize)) {
    if before != after {
        MAIN.count(Held::of(before), u64::wrapping_sub);
        MAIN.count(Held::of(after), u64::wrapping_add);
    }
}

/// Notes that the main thread frees a value.
pub(in crate::server) fn freed(lock: &Lock) {
    MAIN.count(Held::of((lock.mode(), lock.len())), u64::wrapping_sub);
}

/// Notes that another thread frees a value.
pub(in crate::server) fn freed_on_another_thread(lock: &Lock) {
    OTHERS.each(Held::of((lock.mode(), lock.len())), |sum, n| {
        sum.fetch_sub(n, Ordering::Relaxed);
    });
}

/// The numbers now. They include the locks in slots that are being imported.
pub(in crate::server) fn now() -> Held {
    MAIN.now().with(OTHERS.now(), u64::wrapping_add)
}
