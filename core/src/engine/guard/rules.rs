//! The rules of the guard that can be left out, to see that each of them matters: in the world of
//! servers, and in a build with the feature `fault-injection`. No release has this file.

/// A rule, by what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The wait after a start.
    Restart,
    /// The wait after the guard was turned on.
    TurnedOn,
    /// The wait after a majority that kept the guard closed is asked no more.
    GivenUp,
    /// Nobody who waits is granted a lease that is longer than the setting by now.
    Waiting,
    /// The wait after a promotion.
    Promotion,
    /// All of a wait: half of it is not enough.
    WholeWait,
    /// The slack after a promotion.
    Slack,
    /// The slack after a start: what went on before it may have been a promotion.
    SlackOfStart,
    /// Waiters are not granted.
    Serving,
    /// Holders wait, too.
    Holders,
    /// No hold is made longer that ends while the old primary may grant.
    Longer,
    /// The last second of a hold.
    LastSecond,
    /// Holds that linger are not used.
    Linger,
    /// Steps of the wall clock.
    Clock,
    /// A primary that has stood still looks around first.
    Stall,
    /// A majority, and not one server alone.
    Majority,
    /// What a member has acknowledged is fresh, for grants.
    Fresh,
    /// The same for renewals.
    FreshRenewals,
    /// The wait for new grants, once a majority follows.
    Wait,
    /// The wait for renewals.
    RenewalWait,
    /// A link that breaks begins the wait of its member anew.
    Attachment,
    /// What remains of the old primary's doubts, after a planned failover.
    Rest,
    /// The clock of the old primary agrees, after a planned failover.
    Clocks,
    /// The old primary has come back soon, and has lost nothing meanwhile.
    CameBack,
    /// Slots that come.
    Slots,
    /// Slots whose move begins or is given up.
    SlotMoves,
    /// An absent key of a slot that moves.
    SlotAbsent,
}

/// Those that `make campaign CAMPAIGN_PLANTED=1` leaves out, by the names of the faults.
#[cfg(feature = "fault-injection")]
const FAULTS: [(Rule, &str); 15] = [
    (Rule::Restart, "no-guard-after-a-start"),
    (Rule::Promotion, "no-guard-after-a-promotion"),
    (Rule::WholeWait, "half-the-guard"),
    (Rule::Slack, "no-slack"),
    (Rule::Serving, "waiters-while-guarded"),
    (Rule::Holders, "holders-while-guarded"),
    (Rule::Longer, "holds-are-made-longer"),
    (Rule::LastSecond, "the-last-second-counts"),
    (Rule::Majority, "one-member-decides"),
    (Rule::Fresh, "stale-members-count"),
    (Rule::FreshRenewals, "stale-members-renew"),
    (Rule::Wait, "a-majority-at-once"),
    (Rule::WholeWait, "half-the-wait-of-a-majority"),
    (Rule::RenewalWait, "renewals-at-once"),
    (Rule::Attachment, "attachments-go-on"),
];

impl Rule {
    /// The one that the environment of the server says to leave out.
    #[cfg(feature = "fault-injection")]
    pub fn planted() -> Option<Self> {
        let named = |(_, fault): &&(Self, &str)| crate::planted::planted(fault);
        FAULTS.iter().find(named).map(|(rule, _)| *rule)
    }
}
