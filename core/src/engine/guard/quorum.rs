//! A majority: which members of a group follow this primary, and since when.
//!
//! Replicas acknowledge how much of what was sent they have received. What is sent after an instant
//! is younger than that. So a replica that has acknowledged some of it has followed this server at
//! that instant or later: no other server can count on it then. The rules need of each member
//! - **s**: the newest such instant that it has acknowledged, and
//! - **a**: when the first one was heard in its present, unbroken attachment.
//!
//! This server counts as a member, with `s` now and `a` since its start or promotion.
//!
//! # Rules
//! - **A new grant** needs a majority with fresh `s`, and `a` at least C ago. C is the longest
//!   lease, and the time for which a server counts on a member that has left it.
//! - **A renewal** needs a majority with fresh `s`, and `a` at least as long ago as `s` is fresh.
//!   Another server has then stopped to renew.

use std::collections::VecDeque;

use super::doubt::Reason;
use super::settings::{with_drift_us, Settings};

/// For how long the first acknowledgement of a member is expected at any moment, in microseconds.
const EXPECTED_US: u64 = 2_000_000;

/// A replica, as the server lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its address.
    pub name: Box<[u8]>,
    /// How much it has acknowledged. 0 if nothing yet.
    pub acked: u64,
}

/// The replicas of a server, and how much it has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    /// How much was sent.
    pub offset: u64,
    /// Those that receive what is sent.
    pub all: Vec<Replica>,
}

/// A member, but this one.
#[derive(Clone, Debug)]
struct Member {
    name: Box<[u8]>,
    /// When it came.
    came_us: u64,
    /// `s`, once it has acknowledged something.
    fresh_us: Option<u64>,
    /// `a`, once it has acknowledged something. 0 is for ever.
    since_us: Option<u64>,
}

/// Who follows this server. Instants are on a clock that goes on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub(super) struct Quorum {
    began: Option<Reason>,
    began_us: u64,
    /// What is sent after so much is younger than that instant, the newest last.
    sent: VecDeque<(u64, u64)>,
    members: Vec<Member>,
    /// For how long a majority must follow at least, whatever the settings have become since it was
    /// asked first, in microseconds. 0 while the guard is open.
    least_wait_us: u64,
}

/// What the settings ask of a majority.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How many members decide.
    pub(super) majority: usize,
    /// How old at most what they have acknowledged is, for grants and for renewals.
    pub(super) fresh_us: [u64; 2],
    /// How long they must have followed, for grants and for renewals.
    pub(super) wait_us: [u64; 2],
}

impl Terms {
    fn of(settings: &Settings, longest_ms: u64) -> Self {
        let fresh_us = settings.fresh_ms.saturating_mul(1_000);
        let wait_us = [
            settings.wait_us(longest_ms),
            with_drift_us(settings.fresh_ms),
        ];
        let terms = Self {
            majority: (settings.members / 2).saturating_add(1),
            fresh_us: [fresh_us; 2],
            wait_us,
        };
        #[cfg(any(test, feature = "fault-injection"))]
        let terms = terms.leave_out(settings);
        terms
    }
}

impl Quorum {
    /// Nobody follows this server yet.
    pub(super) fn begin(&mut self, by: Reason, boot_us: u64) {
        *self = Self {
            began: Some(by),
            began_us: boot_us,
            least_wait_us: self.least_wait_us,
            ..Self::default()
        };
    }

    /// Whether this server is a primary.
    pub(super) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    /// Why it began.
    pub(super) fn began_by(&self) -> Reason {
        self.began.unwrap_or(Reason::Restart)
    }

    /// Notes that what is sent from now on, after so much, is younger than now.
    pub(super) fn note_sent(&mut self, offset: u64, boot_us: u64, settings: &Settings) {
        let fresh_us = settings.fresh_ms.saturating_mul(1_000);
        let is_old = |at_us: u64| boot_us.saturating_sub(at_us) > fresh_us;
        while self.sent.front().is_some_and(|(_, at_us)| is_old(*at_us)) {
            self.sent.pop_front();
        }
        self.sent.push_back((offset, boot_us));
    }

    /// Hears of all replicas. One that is new, was away, or is there twice begins anew.
    pub(super) fn hear(&mut self, replicas: &Replicas, boot_us: u64) {
        let all = &replicas.all;
        let is_once = |name: &[u8]| all.iter().filter(|one| *one.name == *name).count() == 1;
        self.members.retain(|member| is_once(&member.name));
        for one in all.iter().filter(|one| is_once(&one.name)) {
            let at = self.members.iter().position(|m| m.name == one.name);
            let at = at.unwrap_or_else(|| {
                self.members.push(Member {
                    name: one.name.clone(),
                    came_us: boot_us,
                    fresh_us: None,
                    since_us: None,
                });
                self.members.len().saturating_sub(1)
            });
            let mut sent = self.sent.iter().rev();
            let newest = sent.find(|(offset, _)| one.acked > *offset);
            if let (Some(member), Some((_, at_us))) = (self.members.get_mut(at), newest) {
                member.fresh_us = member.fresh_us.max(Some(*at_us));
                member.since_us.get_or_insert(boot_us);
            }
        }
    }

    #[cfg(any(test, feature = "fault-injection"))]
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.members.iter().map(|member| &*member.name)
    }

    /// This server goes on with what the server before it had, which is a member now.
    pub(super) fn goes_on_with(&mut self, name: &[u8]) {
        self.began_us = 0;
        let mut members = self.members.iter_mut();
        if let Some(member) = members.find(|member| *member.name == *name) {
            member.since_us = Some(0);
        }
    }

    /// Until when all members are fresh that are. It changes when something is heard.
    pub(super) fn fresh_until_us(&self, boot_us: u64, settings: &Settings) -> u64 {
        let first_us = self.all_fresh_us(boot_us, settings).min();
        let first_us = first_us.unwrap_or(u64::MAX);
        first_us.saturating_add(settings.fresh_ms.saturating_mul(1_000))
    }

    /// Whether a member has come lately, and has acknowledged nothing yet.
    pub(super) fn expects_somebody(&self, boot_us: u64) -> bool {
        let is_new = |member: &Member| boot_us.saturating_sub(member.came_us) < EXPECTED_US;
        let mut silent = self.members.iter().filter(|m| m.since_us.is_none());
        silent.any(is_new)
    }

    /// How many members are fresh, this one included.
    pub(super) fn fresh(&self, boot_us: u64, settings: &Settings) -> usize {
        let others = self.all_fresh_us(boot_us, settings).count();
        others.saturating_add(1)
    }

    /// `s` of each member that is fresh.
    fn all_fresh_us<'q>(
        &'q self,
        boot_us: u64,
        settings: &Settings,
    ) -> impl Iterator<Item = u64> + 'q {
        let fresh_us = settings.fresh_ms.saturating_mul(1_000);
        let all = self.members.iter().filter_map(|member| member.fresh_us);
        all.filter(move |us| boot_us.saturating_sub(*us) <= fresh_us)
    }

    /// When new grants begin by what is known now. `None` while no majority follows this server.
    pub(super) fn opens_us(
        &self,
        boot_us: u64,
        settings: &Settings,
        longest_ms: u64,
    ) -> Option<u64> {
        let terms = Terms::of(settings, longest_ms);
        let ([fresh_us, _], [wait_us, _]) = (terms.fresh_us, terms.wait_us);
        let wait_us = self.least_wait_us.max(wait_us);
        self.begins_us(boot_us, terms.majority, fresh_us, wait_us)
    }

    /// The same of renewals.
    pub(super) fn renews_us(&self, boot_us: u64, settings: &Settings) -> Option<u64> {
        let terms = Terms::of(settings, 0);
        let ([_, fresh_us], [_, wait_us]) = (terms.fresh_us, terms.wait_us);
        self.begins_us(boot_us, terms.majority, fresh_us, wait_us)
    }

    /// The guard is closed. A shorter lease by other settings does not open it sooner.
    pub(super) fn stays_closed(&mut self, settings: &Settings, longest_ms: u64) {
        let [wait_us, _] = Terms::of(settings, longest_ms).wait_us;
        self.least_wait_us = wait_us.max(self.least_wait_us);
    }

    /// The guard is open: all leases are over that this server may have lacked.
    pub(super) fn is_open(&mut self) {
        self.least_wait_us = 0;
    }

    /// When something begins that so many members decide, once they have followed for `wait_us`.
    fn begins_us(&self, boot_us: u64, majority: usize, fresh_us: u64, wait_us: u64) -> Option<u64> {
        let is_fresh = |us: u64| boot_us.saturating_sub(us) <= fresh_us;
        let members = self.members.iter();
        let members = members.filter(|one| one.fresh_us.is_some_and(is_fresh));
        let others = members.filter_map(|member| member.since_us);
        let mut since_us: Vec<u64> = others.chain([self.began_us]).collect();
        since_us.sort_unstable();
        match *since_us.get(majority.checked_sub(1)?)? {
            0 => Some(0), // As after a planned failover.
            since_us => Some(since_us.saturating_add(wait_us)),
        }
    }
}
