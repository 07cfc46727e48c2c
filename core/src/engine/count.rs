//! Counters of events since the server started, or since LOCK.RESETSTAT. docs/METRICS.md says
//! what each counts.
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
    /// `acquired` - `handed_over` were granted at once, as long as there is no LOCK.MACQUIRE: it
    /// counts once for each key.
    Acquired = c"acquired";
    Reacquired = c"reacquired";
    Macquired = c"macquired";
    Refused = c"refused";
    Waited = c"waited";
    HandedOver = c"handed_over";
    /// CLIENT UNBLOCK does not count.
    TimedOut = c"timed_out";
    Resumed = c"resumed";
    /// Also where nobody received the message of the grant.
    PassedOver = c"passed_over";
    Published = c"published";
    Unheard = c"unheard";
    Disconnected = c"disconnected";
    /// These holds count as expired when they end.
    DisconnectedLater = c"disconnected_later";
    TakenBack = c"taken_back";
    Deadlocks = c"deadlocks";
    DeadlockCycles = c"deadlock_cycles";
    DeadlockOverBudget = c"deadlock_over_budget";
    Guards = c"guards";
    Guarded = c"guarded";
    QueueFull = c"queue_full";
    Released = c"released";
    /// These holds count as expired when they end.
    ReleasedLater = c"released_later";
    NotOwner = c"not_owner";
    Renewed = c"renewed";
    LostRenewals = c"lost_renewals";
    /// Those of LOCK.ONCE that were returned at once.
    ResultsFound = c"results_found";
    /// Requests that have waited for one.
    ResultsAnswered = c"results_answered";
    Executed = c"executed";
    NotHeld = c"not_held";
    /// They are counted when the server deletes the key, or when the next change of the lock drops
    /// them.
    Expired = c"expired";
    /// MIGRATE and a slot that moves to another node count too, although the hold lives on there.
    /// FLUSHALL and FLUSHDB do not, because the server does not say which keys they delete.
    Forced = c"forced";
    /// Locks, not holds.
    Evicted = c"evicted";
}
