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
use std::ffi::c_int;

use super::super::api::{Arg, Context};
use super::super::notify::{self, Event};
use super::super::waiting::{callbacks, timer};
use super::super::{clock, eviction};
use super::counters::{EVICTED, EXPIRED, FORCED};
use crate::lock::{Lock, Now};

/// The most holds of a lock that the server always frees at once: `LAZYFREE_THRESHOLD` in its `lazyfree.c`.
const FREED_LATER: usize = 64;

/// How far the server's clock may be ahead of the module's, where it reckons the time from the processor's counter, and how much
/// sooner a server expires a key than at the end of its last millisecond.
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

thread_local! {
    /// The lock that was last seen to leave. Other threads, which only free values, see none.
    static LAST: Cell<Option<Removal>> = const { Cell::new(None) };
}

/// Notes that a lock has left its key, before the server frees it or puts it under another.
pub(in super::super) fn begin(lock: &Lock) {
    LAST.set(None);
    // A replica's primary counts for it, and what a file brings was counted before.
    let Some(ctx) = Context::detached().filter(|ctx| ctx.is_primary() && !ctx.is_loading()) else {
        return;
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
        count(removal);
    } else {
        LAST.set(Some(removal));
    }
}

/// Notes that a value is freed, on whatever thread.
pub(in super::super) fn freed(lock: &Lock) {
    let is_this = |removal: &Removal| std::ptr::eq(removal.value, lock);
    if let Some(removal) = LAST.take().filter(is_this) {
        // One that has moved may be freed by a command of ours, later.
        if !callbacks::is_quiet() {
            count(removal);
        }
    }
}

/// Forgets what has left last: the whole database goes, of which nothing is counted.
pub(in super::super) fn forget() {
    LAST.set(None);
}

fn has_expired(lock: &Lock) -> bool {
    let now_us = clock::now().us();
    lock.is_free(Now::from_micros(now_us.saturating_add(CLOCK_PLAY_US)))
}

fn count(removal: Removal) {
    match removal.cause {
        Cause::Expired => EXPIRED.add(removal.holds),
        Cause::Evicted => EVICTED.add_one(),
        Cause::Forced => FORCED.add(removal.holds),
    }
}

/// Notes for those who listen that a lock which the server has deleted has expired. `db` is not known on 6.2.
pub(in super::super) fn note_expiry(lock: &Lock, db: Option<c_int>, name: Arg<'_>) {
    if !notify::is_on() || !has_expired(lock) {
        return;
    }
    let is_primary = Context::detached().is_some_and(Context::is_primary);
    if let Some(db) = db.filter(|_| is_primary) {
        notify::note_in(db, Event::Expire, name);
        timer::arm_at_once();
    }
}
