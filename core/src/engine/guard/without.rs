//! The guard without one of its [`Rule`]s. No release has this file.

use super::doubt::{Doubt, Known, Reason};
use super::quorum::{Quorum, Replica, Replicas, Terms};
use super::rules::Rule;
use super::settings::{Scope, Settings};

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
