//! The rules of the guard that can be left out, to see that each of them matters: in the world of
//! servers, and in a build with the feature `fault-injection`. No release has this file.

use super::doubt::{Doubt, Known, Reason};
use super::quorum::{Quorum, Replica, Replicas, Terms};
use super::settings::{Scope, Settings};

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
    pub(crate) fn planted() -> Option<Self> {
        let named = |(_, fault): &&(Self, &str)| crate::planted::planted(fault);
        FAULTS.iter().find(named).map(|(rule, _)| *rule)
    }
}

impl Settings {
    pub(in crate::engine) fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Whether the slack of the primary before may make a wait longer.
    pub(super) fn hears_of_slack(&self) -> bool {
        self.has(Rule::Slack) && self.has(Rule::WholeWait)
    }

    /// How far the clock of the old primary may differ.
    pub(super) fn without_clocks(&self, most_us: u64) -> u64 {
        if self.has(Rule::Clocks) {
            most_us
        } else {
            u64::MAX
        }
    }
}

impl Doubt {
    /// Without the rule that is left out.
    pub(super) fn leave_out(mut self, settings: &Settings, at_us: u64) -> Option<Self> {
        let Some(without) = settings.without else {
            return Some(self);
        };
        let slack_us = settings.slack_ms.saturating_mul(1_000);
        let wait_us = self.until_us.saturating_sub(at_us);
        let without_slack = Self {
            until_us: self.until_us.saturating_sub(slack_us),
            known: Known {
                not_renewed_until_us: 0,
                ..self.known
            },
            ..self
        };
        match (without, self.why) {
            (Rule::Restart, Reason::Restart)
            | (Rule::Promotion, Reason::Promotion)
            | (Rule::Clock, Reason::Clock)
            | (Rule::Stall, Reason::Stall)
            | (Rule::Slots, Reason::Slot) => return None,
            (Rule::SlackOfStart, Reason::Restart)
            | (Rule::Slack, Reason::Promotion | Reason::Slot)
                if settings.scope == Scope::Failover =>
            {
                self = without_slack;
            }
            (Rule::Wait, Reason::Promotion) => self.until_us = at_us,
            (Rule::WholeWait, _) => self.until_us = at_us.saturating_add(wait_us / 2),
            (Rule::Longer, why) if why != Reason::Stall => self.known.not_renewed_until_us = 0,
            (Rule::LastSecond, _) => self.known.without_last_second = false,
            (Rule::Linger, _) => self.known.without_lingering = false,
            _ => {}
        }
        Some(self)
    }
}

impl Terms {
    /// Without the rule that is left out.
    pub(super) fn leave_out(mut self, settings: &Settings) -> Self {
        let [fresh_us, fresh_renewals_us] = &mut self.fresh_us;
        let [wait_us, renewal_wait_us] = &mut self.wait_us;
        match settings.without {
            Some(Rule::Majority) => self.majority = 1,
            Some(Rule::Fresh) => *fresh_us = u64::MAX,
            Some(Rule::FreshRenewals) => *fresh_renewals_us = u64::MAX,
            Some(Rule::Wait) => *wait_us = 0,
            Some(Rule::WholeWait) => *wait_us /= 2,
            Some(Rule::RenewalWait) => *renewal_wait_us = 0,
            _ => {}
        }
        self
    }
}

impl Quorum {
    /// The replicas, with those that have gone as if they had not, where that rule is left out.
    pub(super) fn with_gone(&self, replicas: &Replicas, settings: &Settings) -> Replicas {
        let mut replicas = replicas.clone();
        if settings.has(Rule::Attachment) {
            return replicas;
        }
        replicas.all.reverse(); // The newest one of a name.
        replicas.all.sort_by(|a, b| a.name.cmp(&b.name));
        replicas.all.dedup_by(|a, b| a.name == b.name);
        for name in self.names() {
            if !replicas.all.iter().any(|one| *one.name == *name) {
                let name = name.into();
                replicas.all.push(Replica { name, acked: 0 });
            }
        }
        replicas
    }
}
