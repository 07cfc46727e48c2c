//! The places whose tokens have a hold and wait for one that tolerates fewer holders.
//!
//! Each of them can be granted as soon as no more hold the lock than it tolerates. So one that
//! tolerates more comes before one that tolerates fewer, and only the first at which somebody
//! listens has to be looked at, and the last absent one ahead of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use crate::lock::{Deadline, Now};
use crate::wait::place::{Place, Ticket};

/// Where a place stands among those that upgrade.
type Standing = (Reverse<u32>, Ticket);

#[derive(Clone, Copy, Debug)]
pub(super) struct Upgrade {
    /// The most holders that a request of the place tolerates.
    width: u32,
    /// Whether somebody listens there.
    listens: bool,
    /// When its hold ends, as far as is known; 0 where it has to be looked at.
    ends_at_ms: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Upgrades {
    by_ticket: BTreeMap<Ticket, Upgrade>,
    /// All of them in the order in which they are decided.
    by_width: BTreeSet<Standing>,
    /// Those at which somebody listens.
    listening: BTreeSet<Standing>,
    /// All of them by the end of the hold. While that has not come, the token has the hold: whoever
    /// changes the hold of a token says so ([`Upgrades::look_again_at`]), and whoever changes all
    /// of them, too ([`Upgrades::look_again`]).
    by_end: BTreeSet<(u64, Ticket)>,
    /// The one that waits for the exclusive hold: there is one at most.
    exclusive: Option<Ticket>,
}

impl Upgrades {
    /// Adds a place, or follows one that has changed: what is left of its requests may narrow its
    /// hold no more, so it is looked at.
    pub(super) fn set<L>(&mut self, place: &Place<L>) {
        self.remove(place.ticket);
        // One that is about to end has no mode any more.
        if place.is_over() {
            return;
        }
        let upgrade = Upgrade {
            width: place.widest(),
            listens: !place.is_absent(),
            ends_at_ms: 0,
        };
        self.add(place.ticket, upgrade);
        if place.wants_exclusive() {
            self.exclusive.get_or_insert(place.ticket);
        }
    }

    fn add(&mut self, ticket: Ticket, upgrade: Upgrade) {
        let standing = (Reverse(upgrade.width), ticket);
        self.by_ticket.insert(ticket, upgrade);
        self.by_width.insert(standing);
        if upgrade.listens {
            self.listening.insert(standing);
        }
        self.by_end.insert((upgrade.ends_at_ms, ticket));
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Upgrade> {
        let removed = self.by_ticket.remove(&ticket)?;
        let standing = (Reverse(removed.width), ticket);
        self.by_width.remove(&standing);
        self.listening.remove(&standing);
        self.by_end.remove(&(removed.ends_at_ms, ticket));
        self.exclusive = self.exclusive.filter(|other| *other != ticket);
        Some(removed)
    }

    /// Notes when the hold of a place ends.
    pub(super) fn set_end(&mut self, ticket: Ticket, end: Deadline) {
        self.set_end_ms(ticket, end.ms());
    }

    /// Has a place looked at: the hold of its token may have changed.
    pub(super) fn look_again_at(&mut self, ticket: Ticket) {
        self.set_end_ms(ticket, 0);
    }

    /// Has all places looked at.
    pub(super) fn look_again(&mut self) {
        let tickets: Vec<Ticket> = self.by_ticket.keys().copied().collect();
        tickets
            .into_iter()
            .for_each(|ticket| self.look_again_at(ticket));
    }

    fn set_end_ms(&mut self, ticket: Ticket, ends_at_ms: u64) {
        if let Some(upgrade) = self.by_ticket.get_mut(&ticket) {
            self.by_end.remove(&(upgrade.ends_at_ms, ticket));
            upgrade.ends_at_ms = ends_at_ms;
            self.by_end.insert((ends_at_ms, ticket));
        }
    }

    /// A place whose hold has ended by now, or has to be looked at.
    pub(super) fn first_to_look_at(&self, now: Now) -> Option<Ticket> {
        let (ends_at_ms, ticket) = self.by_end.first()?;
        (*ends_at_ms < now.ms()).then_some(*ticket)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty()
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        !self.is_empty() && self.by_ticket.contains_key(&ticket)
    }

    pub(super) const fn exclusive(&self) -> Option<Ticket> {
        self.exclusive
    }

    /// The tickets, in the order in which their places are decided.
    pub(super) fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.by_width.iter().map(|(_, ticket)| *ticket)
    }

    /// The first place at which somebody listens, and the last absent one ahead of it: of those
    /// ahead of this place, if it upgrades.
    pub(super) fn ahead_of(&self, before: Option<Ticket>) -> (Option<Ticket>, Option<Ticket>) {
        let standing = |ticket| {
            let upgrade = self.by_ticket.get(&ticket)?;
            Some((Reverse(upgrade.width), ticket))
        };
        let before = before.and_then(standing);
        let listening = self.listening.first().copied();
        let listening = listening.filter(|first| before.is_none_or(|before| *first < before));
        let end = listening.or(before).map_or(Unbounded, Excluded);
        let absent = self.by_width.range((Unbounded, end)).next_back();
        let ticket = |(_, ticket)| ticket;
        (listening.map(ticket), absent.copied().map(ticket))
    }
}

#[cfg(test)]
impl Upgrades {
    /// Whether the indexes agree with the places.
    pub(super) fn assert_tight<'p, L: 'p>(&self, place: impl Fn(Ticket) -> &'p Place<L>) {
        let len = self.by_ticket.len();
        assert_eq!((len, len), (self.by_width.len(), self.by_end.len()));
        let listening = self.by_ticket.values().filter(|upgrade| upgrade.listens);
        assert_eq!(listening.count(), self.listening.len());
        for (ticket, upgrade) in &self.by_ticket {
            let (place, standing) = (place(*ticket), (Reverse(upgrade.width), *ticket));
            assert_eq!(upgrade.width, place.widest());
            assert_eq!(upgrade.listens, !place.is_absent());
            assert_eq!(upgrade.listens, self.listening.contains(&standing));
            assert!(self.by_width.contains(&standing));
            assert!(self.by_end.contains(&(upgrade.ends_at_ms, *ticket)));
        }
    }
}
