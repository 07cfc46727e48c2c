//! The rules that a history must keep.

/// Violations that no server may commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Two holds at one instant that exclude each other.
    TwoHolders,
    /// A new hold whose fence is not larger than all before.
    FenceOrder,
    /// A hold that was kept, but with another fence.
    KeptFence,
    /// An effect that is dated before an earlier one.
    TimeOrder,
    /// A fence was delivered to a client that the file does not have for it.
    UnknownFence,
    /// A grant without a request that could have been waiting at that time.
    Ghost,
    /// A grant to a request that got another reply.
    Unheard,
    /// A grant that passed an earlier request.
    OutOfOrder,
    /// No reply, or a connection closed without a reason.
    Unanswered,
    /// Null before the timeout has passed.
    EarlyTimeout,
    /// The head of the queue could have the lock and does not get it.
    Idle,
    /// LOCK.INFO shows other holds than the file.
    ShownHolds,
    /// LOCK.INFO shows a request that does not wait, omits one that does, or has the wrong order.
    ShownQueue,
    /// A reply that does not fit the effects.
    WrongAnswer,
    /// A hold that outlives the expiry that its key was given.
    Lengthened,
    /// A hold that ended without a cause.
    TakenAway,
    /// A new hold that was not delivered to its client, and stays beyond the grace.
    NotTakenBack,
    /// A grant of several keys that is not one step, one fence, or all of them.
    Torn,
    /// A hold with LINGER 0 that outlives its connection.
    Lingers,
    /// A grant that passed an absent place and does not fit beside it.
    PastKept,
    /// An absent place that is there after its grace.
    KeptTooLong,
    /// A guarded write without a hold of its token.
    Unguarded,
    /// A release with ATLEAST that ends the hold too early, or sets another deadline.
    AtLeast,
    /// Something is left after everything has ended.
    LeftOver,
}

impl Rule {
    /// Whether a server that the system stops for a few milliseconds may seem to break it.
    pub fn is_about_time(self) -> bool {
        use Rule::{Idle, KeptTooLong, Lingers, NotTakenBack, ShownQueue, TimeOrder};
        matches!(
            self,
            TimeOrder | Idle | ShownQueue | NotTakenBack | Lingers | KeptTooLong
        )
    }
}

#[derive(Clone, Debug)]
pub struct Breach {
    pub rule: Rule,
    /// The position in the log.
    pub at: usize,
    pub text: String,
}
