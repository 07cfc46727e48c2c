//! What the settings say, and why a guard is closed.

use std::ffi::CStr;

#[cfg(not(test))]
use crate::planted::planted;

/// By how much the clocks of two servers may differ, in milliseconds.
pub const CLOCKS_APART_MS: u64 = 1_000;

/// After what the server waits. Each includes the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// After nothing.
    #[default]
    Off,
    /// After a start, and a step of the wall clock.
    Restart,
    /// Also after a promotion.
    Failover,
    /// Also while no majority of the servers follows this one.
    Quorum,
}

/// What the settings of the server say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// After what it waits.
    pub scope: Scope,
    /// The longest lease, in milliseconds.
    pub max_ttl_ms: u64,
    /// How late an old primary may still grant, in milliseconds.
    pub slack_ms: u64,
    /// How many servers a group has, the primary included.
    pub members: usize,
    /// How old what a member has acknowledged may be, in milliseconds.
    pub fresh_ms: u64,
    /// By how many of a thousand the speeds of clocks may differ.
    pub drift: u64,
    /// The rule that is left out, to see that it matters.
    #[cfg(test)]
    pub without: Option<Rule>,
}

/// The rules, by the numbers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The wait after a start.
    Restart,
    /// A server that ends while its guard is closed knows it at the next start.
    #[cfg(test)]
    WasGuarded,
    /// The wait after the guard was turned on.
    TurnedOn,
    /// The wait after a majority that kept the guard closed is asked no more.
    GivenUp,
    /// Nobody who waits is granted a lease that is longer than the setting by now.
    Waiting,
    /// The wait after a promotion.
    Promotion,
    /// The slack after a promotion.
    Slack,
    /// Waiters are not granted.
    Serving,
    /// Holders wait, too.
    Holders,
    /// No hold is made longer that ends while the old primary may grant.
    Longer,
    /// The last second of a hold.
    LastSecond,
    /// Holds that linger are not used after a promotion.
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
    /// All of it: a part of it is not enough.
    WholeWait,
    /// The wait for renewals.
    RenewalWait,
    /// A link that breaks begins the wait of its member anew.
    Attachment,
    /// The rest of the old primary's guard, after a planned hand-over.
    Rest,
    /// The clock of the old primary agrees, after a planned hand-over.
    Clocks,
    /// A member has stayed for a while before it counts, in a group of more than three.
    Stay,
    /// The members of the old primary have come soon, after a planned hand-over.
    Soon,
    /// The new primary has followed the old one for long, before a planned hand-over.
    LongLink,
    /// The old primary has come back soon, and has lost nothing meanwhile.
    #[cfg(test)]
    CameBack,
    /// Slots that come are closed.
    Slots,
    /// An absent key of a slot that was on its way.
    SlotGoes,
    /// The node before says that it has a slot no more, and does not import it.
    SlotIsGone,
    /// The node before says that all leases of a slot have come along.
    SlotIsWhole,
    /// The rest of the guard of the node before.
    SlotRest,
}

#[cfg(not(test))]
impl Rule {
    /// The planted fault that takes it out.
    #[inline(always)]
    const fn fault(self) -> &'static str {
        match self {
            Self::Restart => "no-guard-after-a-start",
            Self::Promotion => "no-guard-after-a-promotion",
            Self::Slack => "no-slack",
            Self::Serving => "waiters-while-guarded",
            Self::Holders => "holders-while-guarded",
            Self::Longer => "holds-are-made-longer",
            Self::LastSecond => "the-last-second-counts",
            Self::Majority => "one-member-decides",
            Self::Fresh => "stale-members-count",
            Self::FreshRenewals => "stale-members-renew",
            Self::Wait => "a-majority-at-once",
            Self::WholeWait => "half-the-wait-of-a-majority",
            Self::RenewalWait => "renewals-at-once",
            Self::Attachment => "attachments-go-on",
            _ => "",
        }
    }
}

impl Settings {
    #[cfg(test)]
    pub(in crate::engine) fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    #[cfg(not(test))]
    #[inline(always)]
    pub(in crate::engine) fn has(&self, rule: Rule) -> bool {
        !planted(rule.fault())
    }

    /// A time of another server's clock that is certainly over here, in microseconds.
    pub(super) const fn with_drift_us(&self, ms: u64) -> u64 {
        let thousandths = self.drift.saturating_mul(4).saturating_add(1_000);
        ms.saturating_mul(thousandths)
    }
}

/// How often a primary tells its replicas of the guard, asks what they have received, and looks at
/// its slots.
pub(in crate::engine) const BEAT_US: u64 = 250_000;

/// Why a guard is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The server has started, or the guard was turned on.
    Restart,
    /// The server was promoted.
    Promotion,
    /// The wall clock was stepped forward.
    Clock,
    /// The process has stood still, and may have been replaced meanwhile.
    Stall,
    /// No majority of the servers follows this one.
    Alone,
    /// A slot has come without a promotion.
    Slot,
}

impl Reason {
    /// Those that end by themselves.
    pub(super) const TIMED: [Self; 4] = [Self::Restart, Self::Promotion, Self::Clock, Self::Stall];

    /// What the next start is to know, after what it was to know before: the rules of a promotion
    /// outlast those of a start, and a slot has come as by one. `None` is that the guard is open.
    pub fn to_remember(before: Option<Self>, now: Option<Self>) -> Option<Self> {
        let is_one = |reason| matches!(reason, Self::Promotion | Self::Slot);
        let is_promotion = [before, now].into_iter().flatten().any(is_one);
        now.map(|_| match is_promotion {
            true => Self::Promotion,
            false => Self::Restart,
        })
    }

    /// Its name in INFO and in the log.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Restart => c"restart",
            Self::Promotion => c"promotion",
            Self::Clock => c"clock",
            Self::Stall => c"stall",
            Self::Alone => c"alone",
            Self::Slot => c"slot",
        }
    }
}
