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

/// Makes the counters, with the names that INFO shows.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $field:literal;)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(#[$doc])* $name,)*
        }

        impl Count {
            /// All of them, with their names, in the order of INFO.
            pub const ALL: [(Self, &CStr); [$($field),*].len()] = [$((Self::$name, $field)),*];
        }
    };
}

counts! {
    /// Acquires that were granted, at once or after a wait. `acquired` - `handed_over` were granted
    /// at once, as long as there is no LOCK.MACQUIRE: it counts once for each key.
    Acquired = c"acquired";
    /// Granted acquires whose token already held the lock: it asked again, or for the other mode.
    /// They begin no new hold.
    Reacquired = c"reacquired";
    /// Requests of LOCK.MACQUIRE that were granted. The other counters of requests count them, too.
    Macquired = c"macquired";
    /// Acquires that got null at once: without BLOCK and NOTIFY (KEEP may keep a place), or where
    /// clients may not block.
    Refused = c"refused";
    /// Acquires that waited, by BLOCK or NOTIFY.
    Waited = c"waited";
    /// Waiting acquires that were granted.
    HandedOver = c"handed_over";
    /// Waiting acquires whose timeout has passed. CLIENT UNBLOCK does not count.
    TimedOut = c"timed_out";
    /// Requests that found the place which their token had kept, at which nobody listened.
    Resumed = c"resumed";
    /// Places that have ended because nobody listened: their grace was over, or nobody received the
    /// message of the grant.
    PassedOver = c"passed_over";
    /// Messages published to channels of NOTIFY.
    Published = c"published";
    /// Those of them that carried a grant and reached nobody: the grant was not made.
    Unheard = c"unheard";
    /// Holds that ended because their connection was lost (LINGER).
    Disconnected = c"disconnected";
    /// Holds whose deadline came forward for the same reason. They count as expired when they end.
    DisconnectedLater = c"disconnected_later";
    /// Grants that were revoked, because the waiter was gone before it heard of its grant.
    TakenBack = c"taken_back";
    /// Acquires that got -DEADLOCK.
    Deadlocks = c"deadlocks";
    /// Those of them whose wait would have closed a cycle of waits.
    DeadlockCycles = c"deadlock_cycles";
    /// Acquires that wait although the search for a cycle had more to look at than it may.
    DeadlockOverBudget = c"deadlock_over_budget";
    /// Guards that have begun: after a start, a promotion, or a step of the wall clock.
    Guards = c"guards";
    /// Acquires that a guard has refused, or has made wait.
    Guarded = c"guarded";
    /// Acquires that got -QUEUEFULL.
    QueueFull = c"queue_full";
    /// Holds that their owners released.
    Released = c"released";
    /// Releases with ATLEAST that have only shortened their hold. It counts as expired when it
    /// ends.
    ReleasedLater = c"released_later";
    /// Releases that got 0: the token's hold had ended, or it never had one.
    NotOwner = c"not_owner";
    /// Holds that were renewed.
    Renewed = c"renewed";
    /// Renewals that got 0.
    LostRenewals = c"lost_renewals";
    /// Commands that LOCK.EXEC has run.
    Executed = c"executed";
    /// Those that it has not run, because the token did not hold the lock.
    NotHeld = c"not_held";
    /// Holds that have reached their deadline. They are counted when the server deletes the key, or
    /// when the next change of the lock drops them.
    Expired = c"expired";
    /// Holds that a command on their key has ended: DEL, UNLINK, SET, RENAME to it, RESTORE REPLACE
    /// and the like. MIGRATE and a slot that moves to another node count too, although the hold
    /// lives on there. FLUSHALL and FLUSHDB do not count, because the server does not say which
    /// keys they delete.
    Forced = c"forced";
    /// Locks, not holds, that were evicted.
    Evicted = c"evicted";
}
