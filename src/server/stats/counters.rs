//! Counters: what has happened since the server has started, or since LOCK.RESETSTAT.
//!
//! Two sums hold while nothing is loaded and nothing reset:
//!
//! - of requests: `waited` = `handed_over` + `timed_out` + those that left otherwise (gone, killed, unblocked, unheard, given up, sent away)
//!   + those that wait. While every token has one request at a time, these are the gauges `waiters_blocked` and `waiters_notified`;
//! - of holds: `acquired` - `reacquired` = `released` + `expired` + `forced` + `taken_back` + what is held now + what FLUSHALL, FLUSHDB and eviction took.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that goes up. Only the main thread writes it.
pub(in super::super) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(in super::super) fn add_one(&self) {
        self.set(self.get().wrapping_add(1));
    }

    pub(in super::super) fn add(&self, n: usize) {
        let n = u64::try_from(n).unwrap_or_default();
        self.set(self.get().wrapping_add(n));
    }

    pub(in super::super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn reset(&self) {
        self.set(0);
    }

    fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

/// Makes the counters, and the table of them by the names that INFO shows.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $field:literal;)*) => {
        $($(#[$doc])* pub(in super::super) static $name: Counter = Counter::new();)*
        /// All of them, in the order of INFO.
        pub(in super::super) static ALL: [(&CStr, &Counter); [$($field),*].len()] = [$(($field, &$name)),*];
    };
}

counters! {
    /// Acquires that were granted, at once or after waiting. Those at once are `acquired` - `handed_over`.
    ACQUIRED = c"acquired";
    /// Those of them whose token held the lock already: it asked again, or for the other mode. They begin no new hold.
    REACQUIRED = c"reacquired";
    /// Acquires that were answered null at once: without BLOCK and NOTIFY (KEEP may keep a place), or where nobody may block.
    REFUSED = c"refused";
    /// Acquires that waited, by BLOCK or NOTIFY.
    WAITED = c"waited";
    /// Those of them that were granted.
    HANDED_OVER = c"handed_over";
    /// Those of them whose timeout has passed. CLIENT UNBLOCK is not among them.
    TIMED_OUT = c"timed_out";
    /// Requests that found the place which their token had kept, at which nobody listened.
    RESUMED = c"resumed";
    /// Places that have ended because nobody listened: their grace was over, or nobody received the message of the grant.
    PASSED_OVER = c"passed_over";
    /// Messages published to channels of NOTIFY.
    PUBLISHED = c"published";
    /// Those of them that carried a grant and reached nobody: the grant was not made.
    UNHEARD = c"unheard";
    /// Grants to waiters that were gone before they heard of it, and were taken back.
    TAKEN_BACK = c"taken_back";
    /// Acquires that were answered -DEADLOCK.
    DEADLOCKS = c"deadlocks";
    /// Acquires that were answered -QUEUEFULL.
    QUEUE_FULL = c"queue_full";
    /// Holds that were released by their owners.
    RELEASED = c"released";
    /// Releases that were answered 0: the token held nothing any more, or never.
    NOT_OWNER = c"not_owner";
    /// Holds that were renewed.
    RENEWED = c"renewed";
    /// Renewals that were answered 0.
    LOST_RENEWALS = c"lost_renewals";
    /// Holds that have reached their deadline, seen when the server deletes the key, or when the next change drops the one share of many.
    EXPIRED = c"expired";
    /// Holds that a command on their key has ended: DEL, UNLINK, SET, RENAME to it, RESTORE REPLACE and the like; also MIGRATE, and a slot that
    /// goes to another node, where the hold lives on. FLUSHALL and FLUSHDB are not among them: the server does not say of what a database
    /// is emptied.
    FORCED = c"forced";
    /// Locks, not holds, that were evicted.
    EVICTED = c"evicted";
}
