//! The rules that a history must keep.

/// What no server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Two holds at one instant that exclude each other.
    TwoHolders,
    /// A new hold whose fence is not larger than all before.
    FenceOrder,
    /// A hold that was kept, but not with its fence.
    KeptFence,
    /// An effect that is dated before one that stands before it.
    TimeOrder,
    /// A client was told a fence that the account does not have for it.
    UnknownFence,
    /// A grant to nobody who may have asked for it at that time.
    Ghost,
    /// A grant to a request that was told something else.
    Unheard,
    /// A grant past somebody who stood before.
    OutOfOrder,
    /// No answer, or a connection closed for no reason.
    Unanswered,
    /// Null before the timeout has passed.
    EarlyTimeout,
    /// The head of the queue could have the lock and does not get it.
    Idle,
    /// LOCK.INFO shows other holds than the account.
    ShownHolds,
    /// LOCK.INFO shows somebody who does not wait, not everybody who does, or not in order.
    ShownQueue,
    /// An answer that does not fit what the server did.
    WrongAnswer,
    /// A hold that outlives the end that its key was given.
    Lengthened,
    /// A hold that was ended by nobody.
    TakenAway,
    /// A grant that its client cannot have heard of, and that stands.
    NotTakenBack,
    /// Something is left when all have ended.
    LeftOver,
}

#[derive(Clone, Debug)]
pub struct Breach {
    pub rule: Rule,
    /// Where in the log.
    pub at: usize,
    pub text: String,
}
