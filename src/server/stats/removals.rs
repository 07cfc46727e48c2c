//! Locks that the server takes from their keys: DEL, expiry, eviction, overwriting, a key that goes elsewhere.
//!
//! The server says why only in its keyspace events, and to listen to those makes commands on all other keys dearer. So the module
//! tells the causes apart by what it sees for nothing:
//!
//! - A lock whose last deadline has passed has **expired**. A lock that the server deletes earlier, as PEXPIRE has brought its end
//!   forward, counts as ended by force.
//! - A lock that goes while the memory is above `maxmemory` was **evicted**: the server evicts before it runs a command.
//! - A value that is freed right after it has left its key was ended **by force**. A value that is not has moved, by RENAME or
//!   MOVE, and its holds live on. A lock of more than [`FREED_LATER`] holds may be freed by another thread, which nobody hears of: it
//!   counts as ended wherever it goes.

use std::cell::Cell;

use super::super::api::Context;
use super::super::{clock, eviction};
use super::counters::{EVICTED, EXPIRED, FORCED};
use crate::lock::{Lock, Now};

/// The most holds of a lock that the server always frees at once: `LAZYFREE_THRESHOLD` in its `lazyfree.c`.
const FREED_LATER: usize = 64;

/// How far the server's clock may be ahead of the module's, where the server takes the time from the processor's counter, and how
/// much sooner a server expires a key than at the end of its last millisecond.
const CLOCK_PLAY_US: u64 = 2_000;

/// Why a lock has left its key.
#[derive(Clone, Copy)]
enum Cause {
    Expired,
    Evicted,
    Forced,
}

/// A lock that has left its key, and may be freed next.
#[derive(Clone, Copy)]
struct Removal {
    /// The value, only ever compared.
    value: *const Lock,
    holds: usize,
    cause: Cause,
}

/// The lock that has left its key last.
#[derive(Default)]
pub(in super::super) struct Removals {
    last: Cell<Option<Removal>>,
}

impl Removals {
    /// Notes that a lock has left its key, before the server frees it or puts it under another. Answers whether it has expired
    /// on a primary.
    pub(in super::super) fn begin(&self, lock: &Lock) -> bool {
        self.last.set(None);
        // A replica's primary counts for it, and what a file brings was counted before.
        let Some(ctx) = Context::detached().filter(|ctx| ctx.is_primary() && !ctx.is_loading())
        else {
            return false;
        };
        let cause = if has_expired(lock) {
            Cause::Expired
        } else if eviction::is_under_way(ctx) {
            Cause::Evicted
        } else {
            Cause::Forced
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
        matches!(cause, Cause::Expired)
    }

    /// Notes that a value is freed. `is_own_change` says that the module itself deletes it.
    pub(in super::super) fn freed(&self, lock: &Lock, is_own_change: bool) {
        let is_this = |removal: &Removal| std::ptr::eq(removal.value, lock);
        if let Some(removal) = self.last.take().filter(is_this) {
            // One that has moved may be freed by a command of ours, later.
            if !is_own_change {
                removal.count();
            }
        }
    }

    /// Forgets the last one: the whole database goes, of which nothing is counted.
    pub(in super::super) fn forget(&self) {
        self.last.set(None);
    }
}

impl Removal {
    fn count(self) {
        match self.cause {
            Cause::Expired => EXPIRED.add(self.holds),
            Cause::Evicted => EVICTED.add_one(),
            Cause::Forced => FORCED.add(self.holds),
        }
    }
}

fn has_expired(lock: &Lock) -> bool {
    let now_us = clock::now().us();
    lock.is_free(Now::from_micros(now_us.saturating_add(CLOCK_PLAY_US)))
}
