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
//!
//! # A planned hand-over in a group of more than three
//!
//! The old primary and the new one are no majority. So the old one lists in its beats the members
//! that have followed it for C, and how long ago each was heard of. If the new one has followed it
//! for C itself, these count from before, but only those who come soon: less than F after they were
//! heard of there. In the meantime a member may have been with a third server. That one counts a
//! member only after it has stayed for F and 4 %. So the third server cannot have used it.

use std::collections::VecDeque;

use super::hand_over::Before;
use super::settings::{Reason, Rule, Settings};
use crate::command::guard::Follower;

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
    /// Who followed the primary before, once that one has come back.
    before: Before,
}

/// Groups of more members have no majority in the old and the new primary of a hand-over.
const PAIR_DECIDES: usize = 3;

impl Quorum {
    /// Nobody follows this server yet.
    pub(super) fn begin(&mut self, by: Reason, boot_us: u64) {
        *self = Self {
            began: Some(by),
            began_us: boot_us,
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
        let is_old = |at_us: u64| !is_fresh(at_us, boot_us, settings);
        while self.sent.front().is_some_and(|(_, at_us)| is_old(*at_us)) {
            self.sent.pop_front();
        }
        self.sent.push_back((offset, boot_us));
    }

    /// Hears of all replicas. One that is new, was away, or is there twice begins anew.
    pub(super) fn hear(&mut self, replicas: &Replicas, boot_us: u64, settings: &Settings) {
        let all = &replicas.all;
        let is_once = |name: &[u8]| all.iter().filter(|one| *one.name == *name).count() == 1;
        if settings.has(Rule::Attachment) {
            self.members.retain(|member| is_once(&member.name));
        }
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
            let since_us = since_us(&self.before, &one.name, boot_us, settings);
            let mut sent = self.sent.iter().rev();
            let newest = sent.find(|(offset, _)| one.acked > *offset);
            if let (Some(member), Some((_, at_us))) = (self.members.get_mut(at), newest) {
                member.fresh_us = member.fresh_us.max(Some(*at_us));
                member.since_us.get_or_insert(since_us);
            }
        }
    }

    /// This server goes on with what the server before it had, which is a member now.
    pub(super) fn goes_on_with(&mut self, name: &[u8], followers: Before, settings: &Settings) {
        self.began_us = 0;
        self.before = followers;
        for member in &mut self.members {
            if *member.name == *name {
                member.since_us = Some(0);
            } else if let Some(came_us) = &mut member.since_us {
                *came_us = since_us(&self.before, &member.name, *came_us, settings);
            }
        }
    }

    /// The members that have followed this server for so long, where a new primary needs to know.
    pub(super) fn followers(
        &self,
        boot_us: u64,
        wait_us: u64,
        settings: &Settings,
    ) -> Vec<Follower> {
        let follower = |member: &Member| {
            let (since_us, fresh_us) = (member.since_us?, member.fresh_us?);
            let is_long = since_us == 0 || boot_us.saturating_sub(since_us) >= wait_us;
            is_long.then(|| Follower {
                name: member.name.clone(),
                ago_ms: boot_us.saturating_sub(fresh_us).div_ceil(1_000),
            })
        };
        match settings.members > PAIR_DECIDES {
            true => self.members.iter().filter_map(follower).collect(),
            false => Vec::new(),
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
        settings: &'q Settings,
    ) -> impl Iterator<Item = u64> + 'q {
        let all = self.members.iter().filter_map(|member| member.fresh_us);
        all.filter(move |us| is_fresh(*us, boot_us, settings))
    }

    /// Since when a majority follows this server that is fresh. `None` if none does.
    pub(super) fn followed_since_us(&self, boot_us: u64, settings: &Settings) -> Option<u64> {
        self.since_us(boot_us, settings, Rule::Fresh)
    }

    /// The same for renewals.
    pub(super) fn renewed_since_us(&self, boot_us: u64, settings: &Settings) -> Option<u64> {
        self.since_us(boot_us, settings, Rule::FreshRenewals)
    }

    fn since_us(&self, boot_us: u64, settings: &Settings, rule: Rule) -> Option<u64> {
        let must_be_fresh = settings.has(rule);
        let counts = |member: &&Member| {
            let is_fresh = |us| is_fresh(us, boot_us, settings);
            let is_fresh = !must_be_fresh || member.fresh_us.is_some_and(is_fresh);
            is_fresh && member.has_stayed(settings)
        };
        let members = self.members.iter().filter(counts);
        let others = members.filter_map(|member| member.since_us);
        let mut since_us: Vec<u64> = others.chain([self.began_us]).collect();
        since_us.sort_unstable();
        let majority = match settings.has(Rule::Majority) {
            true => (settings.members / 2).saturating_add(1),
            false => 1,
        };
        since_us.get(majority.saturating_sub(1)).copied()
    }
}

impl Member {
    /// Whether it has followed this server for long enough to count at all. Otherwise it may
    /// follow another one soon that takes it for a member from before.
    fn has_stayed(&self, settings: &Settings) -> bool {
        let must = settings.members > PAIR_DECIDES && settings.has(Rule::Stay);
        let (Some(since_us), Some(fresh_us), true) = (self.since_us, self.fresh_us, must) else {
            return true;
        };
        let stayed_us = fresh_us.saturating_sub(since_us);
        since_us == 0 || stayed_us >= settings.with_drift_us(settings.fresh_ms)
    }
}

/// Since when a member counts that was heard of first at `came_us`. 0 is for ever.
fn since_us(before: &Before, name: &[u8], came_us: u64, settings: &Settings) -> u64 {
    let soon_us = settings.fresh_ms.saturating_mul(1_000);
    let is_soon = |us: u64| came_us.saturating_sub(us) < soon_us || !settings.has(Rule::Soon);
    let mut before = before.iter().filter(|(one, _)| **one == *name);
    match before.any(|(_, followed_us)| is_soon(*followed_us)) {
        true => 0,
        false => came_us,
    }
}

fn is_fresh(at_us: u64, boot_us: u64, settings: &Settings) -> bool {
    boot_us.saturating_sub(at_us) <= settings.fresh_ms.saturating_mul(1_000)
}
