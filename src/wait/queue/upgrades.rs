//! The places whose tokens have a hold and wait for one that tolerates fewer holders.
//!
//! Each of them can be granted as soon as no more hold the lock than it tolerates. So one that tolerates more comes before one that
//! tolerates fewer, and only the first has to be looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::wait::place::{Place, Ticket};

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Upgrades {
    /// The most holders that a request of the place tolerates, and the place.
    by_width: BTreeSet<(Reverse<u32>, Ticket)>,
    /// The same by place.
    widths: BTreeMap<Ticket, u32>,
    /// The one that waits for the exclusive hold: there is one at most.
    exclusive: Option<Ticket>,
}

impl Upgrades {
    /// Adds a place, or follows one that has changed.
    pub(super) fn set<L>(&mut self, place: &Place<L>) {
        let (ticket, width) = (place.ticket, place.widest());
        self.remove(ticket);
        // One that is about to end has no mode any more.
        if place.is_over() {
            return;
        }
        self.widths.insert(ticket, width);
        self.by_width.insert((Reverse(width), ticket));
        if place.wants_exclusive() {
            self.exclusive = Some(ticket);
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(width) = self.widths.remove(&ticket) {
            self.by_width.remove(&(Reverse(width), ticket));
            self.exclusive = self.exclusive.filter(|other| *other != ticket);
        }
    }

    /// Follows a place that gets another ticket.
    pub(super) fn move_to(&mut self, before: Ticket, after: Ticket) {
        let is_exclusive = self.exclusive == Some(before);
        if let Some(width) = self.widths.get(&before).copied() {
            self.remove(before);
            self.widths.insert(after, width);
            self.by_width.insert((Reverse(width), after));
            if is_exclusive {
                self.exclusive = Some(after);
            }
        }
    }

    pub(super) fn contains(&self, ticket: Ticket) -> bool {
        !self.widths.is_empty() && self.widths.contains_key(&ticket)
    }

    pub(super) const fn exclusive(&self) -> Option<Ticket> {
        self.exclusive
    }

    /// The tickets, in the order in which their places are decided.
    pub(super) fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.by_width.iter().map(|(_, ticket)| *ticket)
    }
}
