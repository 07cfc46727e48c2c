//! Counters of events since the server started, or since LOCK.RESETSTAT.
//!
//! Two sums are exact as long as nothing is loaded and nothing is reset:
//!
//! - requests: `waited` = `handed_over` + `timed_out` + requests that left otherwise (disconnected,
//!   killed, unblocked, unheard, given up, dismissed) + those that wait. While every token has one
//!   request at a time, these are the gauges `waiters_blocked` and `waiters_notified`;
//! - holds: `acquired` - `reacquired` = `released` + `expired` + `forced` + `taken_back` +
//!   `disconnected` + the holds that exist now + those that FLUSHALL, FLUSHDB and eviction ended.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows until it is reset. Only the main thread writes it.
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

/// Makes the counters and a table of them, with the names that INFO shows.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $field:literal;)*) => {
        $($(#[$doc])* pub(in super::super) static $name: Counter = Counter::new();)*
        /// All of them, in the order of INFO.
        pub(in super::super) static ALL: [(&CStr, &Counter); [$($field),*].len()] = [$(($field, &$name)),*];
    };
}

counters! {
    /// Acquires that were granted, at once or after a wait. `acquired` - `handed_over` were granted
    /// at once, as long as there is no LOCK.MACQUIRE: it counts once for each key.
    ACQUIRED = c"acquired";
    /// Granted acquires whose token already held the lock: it asked again, or for the other mode.
    /// They begin no new hold.
    REACQUIRED = c"reacquired";
    /// Requests of LOCK.MACQUIRE that were granted. The other counters of requests count them, too.
    MACQUIRED = c"macquired";
    /// Acquires that got null at once: without BLOCK and NOTIFY (KEEP may keep a place), or where
    /// clients may not block.
    REFUSED = c"refused";
    /// Acquires that waited, by BLOCK or NOTIFY.
    WAITED = c"waited";
    /// Waiting acquires that were granted.
    HANDED_OVER = c"handed_over";
    /// Waiting acquires whose timeout has passed. CLIENT UNBLOCK does not count.
    TIMED_OUT = c"timed_out";
    /// Requests that found the place which their token had kept, at which nobody listened.
    RESUMED = c"resumed";
    /// Places that have ended because nobody listened: their grace was over, or nobody received the message of the grant.
    PASSED_OVER = c"passed_over";
    /// Messages published to channels of NOTIFY.
    PUBLISHED = c"published";
    /// Those of them that carried a grant and reached nobody: the grant was not made.
    UNHEARD = c"unheard";
    /// Holds that ended because their connection was lost (LINGER).
    DISCONNECTED = c"disconnected";
    /// Holds whose deadline came forward for the same reason. They count as expired when they end.
    DISCONNECTED_LATER = c"disconnected_later";
    /// Grants that were revoked, because the waiter was gone before it heard of its grant.
    TAKEN_BACK = c"taken_back";
    /// Acquires that got -DEADLOCK.
    DEADLOCKS = c"deadlocks";
    /// Those of them whose wait would have closed a cycle of waits.
    DEADLOCK_CYCLES = c"deadlock_cycles";
    /// Acquires that wait although the search for a cycle had more to look at than it may.
    DEADLOCK_OVER_BUDGET = c"deadlock_over_budget";
    /// Acquires that got -QUEUEFULL.
    QUEUE_FULL = c"queue_full";
    /// Holds that their owners released.
    RELEASED = c"released";
    /// Releases with ATLEAST that have only shortened their hold. It counts as expired when it ends.
    RELEASED_LATER = c"released_later";
    /// Releases that got 0: the token's hold had ended, or it never had one.
    NOT_OWNER = c"not_owner";
    /// Holds that were renewed.
    RENEWED = c"renewed";
    /// Renewals that got 0.
    LOST_RENEWALS = c"lost_renewals";
    /// Commands that LOCK.EXEC has run.
    EXECUTED = c"executed";
    /// Those that it has not run, because the token did not hold the lock.
    NOT_HELD = c"not_held";
    /// Holds that have reached their deadline. They are counted when the server deletes the key, or
    /// when the next change of the lock drops them.
    EXPIRED = c"expired";
    /// Holds that a command on their key has ended: DEL, UNLINK, SET, RENAME to it, RESTORE REPLACE
    /// and the like. MIGRATE and a slot that moves to another node count too, although the hold
    /// lives on there. FLUSHALL and FLUSHDB do not count, because the server does not say which
    /// keys they delete.
    FORCED = c"forced";
    /// Locks, not holds, that were evicted.
    EVICTED = c"evicted";
}
