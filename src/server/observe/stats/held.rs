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

use crate::lock::{Lock, Mode};

/// Numbers of locks and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) struct Held {
    /// Locks with an exclusive hold. The number of their holds is the same.
    pub(in crate::server) exclusive: u64,
    /// Locks with one shared hold or more, and no counted one.
    shared_keys: u64,
    /// The holds of these locks.
    pub(in crate::server) shared: u64,
    /// Locks with one counted hold or more.
    counted_keys: u64,
    /// The holds of these locks.
    pub(in crate::server) counted: u64,
}

impl Held {
    /// The numbers for one lock, from its mode and its number of holds.
    fn of((mode, holds): (Mode, usize)) -> Self {
        match mode {
            Mode::Exclusive => Self {
                exclusive: 1,
                ..Self::default()
            },
            Mode::Shared => Self {
                shared_keys: 1,
                shared: u64::try_from(holds).unwrap_or_default(),
                ..Self::default()
            },
            Mode::Counted(_) => Self {
                counted_keys: 1,
                counted: u64::try_from(holds).unwrap_or_default(),
                ..Self::default()
            },
        }
    }

    /// The numbers for the lock under a key, if there is one.
    pub(in crate::server) fn of_key(lock: Option<&Lock>) -> Self {
        lock.map_or(Self::default(), |lock| Self::of((lock.mode(), lock.len())))
    }

    /// The sum of both.
    pub(in crate::server) const fn plus(self, other: Self) -> Self {
        Self {
            exclusive: self.exclusive.saturating_add(other.exclusive),
            shared_keys: self.shared_keys.saturating_add(other.shared_keys),
            shared: self.shared.saturating_add(other.shared),
            counted_keys: self.counted_keys.saturating_add(other.counted_keys),
            counted: self.counted.saturating_add(other.counted),
        }
    }

    /// The difference of both.
    pub(in crate::server) const fn minus(self, part: Self) -> Self {
        Self {
            exclusive: self.exclusive.saturating_sub(part.exclusive),
            shared_keys: self.shared_keys.saturating_sub(part.shared_keys),
            shared: self.shared.saturating_sub(part.shared),
            counted_keys: self.counted_keys.saturating_sub(part.counted_keys),
            counted: self.counted.saturating_sub(part.counted),
        }
    }

    /// The number of holds.
    pub(in crate::server) const fn holds(self) -> u64 {
        let single = self.exclusive.saturating_add(self.shared);
        single.saturating_add(self.counted)
    }

    /// The number of locks.
    pub(in crate::server) const fn keys(self) -> u64 {
        let single = self.exclusive.saturating_add(self.shared_keys);
        single.saturating_add(self.counted_keys)
    }
}

/// Sums of one group of threads. They wrap around: only the total of both groups has a meaning.
struct Sums {
    exclusive: AtomicU64,
    shared_keys: AtomicU64,
    shared: AtomicU64,
    counted_keys: AtomicU64,
    counted: AtomicU64,
}

impl Sums {
    const fn new() -> Self {
        Self {
            exclusive: AtomicU64::new(0),
            shared_keys: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            counted_keys: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        }
    }

    /// Counts by a load and a store. That is enough if only one thread writes.
    fn count(&self, held: Held, change: impl Fn(u64, u64) -> u64) {
        self.each(held, |sum, n| {
            sum.store(change(sum.load(Ordering::Relaxed), n), Ordering::Relaxed);
        });
    }

    fn each(&self, held: Held, act: impl Fn(&AtomicU64, u64)) {
        if held.exclusive > 0 {
            act(&self.exclusive, held.exclusive);
        }
        if held.shared_keys > 0 {
            act(&self.shared_keys, held.shared_keys);
            act(&self.shared, held.shared);
        }
        if held.counted_keys > 0 {
            act(&self.counted_keys, held.counted_keys);
            act(&self.counted, held.counted);
        }
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
    let both = |one: &AtomicU64, other: &AtomicU64| {
        let sum = one.load(Ordering::Relaxed);
        sum.wrapping_add(other.load(Ordering::Relaxed))
    };
    Held {
        exclusive: both(&MAIN.exclusive, &OTHERS.exclusive),
        shared_keys: both(&MAIN.shared_keys, &OTHERS.shared_keys),
        shared: both(&MAIN.shared, &OTHERS.shared),
        counted_keys: both(&MAIN.counted_keys, &OTHERS.counted_keys),
        counted: both(&MAIN.counted, &OTHERS.counted),
    }
}
