//! Locks that the server removes from their keys: DEL, expiry, eviction, overwriting, a key that
//! moves.
//!
//! Only keyspace events tell the cause. A module that listens to them makes commands on all other
//! keys slower. So this module derives the cause from what it sees without them:
//!
//! - A lock whose last deadline has passed has **expired**. If PEXPIRE has brought the end of the
//!   key forward, the server deletes the lock earlier. It then counts as ended **by force**.
//! - A lock that is removed while memory is above `maxmemory` was **evicted**: the server evicts
//!   before it runs a command.
//! - A lock that is freed right after it has left its key was ended **by force**. If it is not
//!   freed, RENAME or MOVE has moved it, and its holds live on. A lock of more than [`FREED_LATER`]
//!   holds may be freed by another thread, without a notice. It counts as ended in any case.

use std::cell::Cell;

use super::counters;
use crate::server::api::clock;
use crate::server::api::Context;
use crate::server::settings::eviction;
use redis_lock_core::engine::Count;
use redis_lock_core::lock::{Lock, Now};

/// The server always frees a lock with at most so many holds at once: `LAZYFREE_THRESHOLD` in its
/// `lazyfree.c`.
const FREED_LATER: usize = 64;

/// The tolerance for the difference of two clocks. Some servers take the time from the processor's
/// counter, which may be ahead of the module's clock. Also, some servers expire a key before the
/// end of its last millisecond.
const CLOCK_PLAY_US: u64 = 2_000;

/// Why a lock has left its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum RemovalCause {
    Expired,
    Evicted,
    Forced,
}

/// A lock that has left its key, and may be freed next.
#[derive(Clone, Copy)]
struct Removal {
    /// The value. The address is only compared.
    value: *const Lock,
    holds: usize,
    cause: RemovalCause,
}

/// The last lock that has left its key.
#[derive(Default)]
pub(in crate::server) struct Removals {
    last: Cell<Option<Removal>>,
}

impl Removals {
    /// Notes that a lock has left its key, before the server frees it or moves it to another key.
    /// Returns why, on a primary that does not load.
    pub(in crate::server) fn begin(&self, lock: &Lock) -> Option<RemovalCause> {
        self.last.set(None);
        // On a replica the primary counts. Locks from a file were counted before.
        let ctx = Context::detached().filter(|ctx| ctx.is_primary() && !ctx.is_loading())?;
        let cause = if has_expired(lock) {
            RemovalCause::Expired
        } else if eviction::is_under_way(ctx) {
            RemovalCause::Evicted
        } else {
            RemovalCause::Forced
        };
        let removal = Removal {
            value: lock,
            holds: lock.len(),
            cause,
        };
        if removal.holds > FREED_LATER {
            removal.count();
        } else {
            self.last.set(Some(removal));
        }
        Some(cause)
    }

    /// Notes that a value is freed. `is_own_change` says whether the module itself deletes it.
    pub(in crate::server) fn freed(&self, lock: &Lock, is_own_change: bool) {
        let is_this = |removal: &Removal| std::ptr::eq(removal.value, lock);
        if let Some(removal) = self.last.take().filter(is_this) {
            // A lock that has moved may later be freed by a command of the module.
            if !is_own_change {
                removal.count();
            }
        }
    }

    /// Forgets the last removal: the whole database is flushed, which is not counted.
    pub(in crate::server) fn forget(&self) {
        self.last.set(None);
    }
}

impl Removal {
    fn count(self) {
        match self.cause {
            RemovalCause::Expired => counters::add(Count::Expired, self.holds),
            RemovalCause::Evicted => counters::add(Count::Evicted, 1),
            RemovalCause::Forced => counters::add(Count::Forced, self.holds),
        }
    }
}

fn has_expired(lock: &Lock) -> bool {
    let now_us = clock::now().us();
    lock.is_free(Now::from_micros(now_us.saturating_add(CLOCK_PLAY_US)))
}
