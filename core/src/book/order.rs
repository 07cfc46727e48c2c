//! Where places stand in the queue of each key. One ordered set serves all keys, so that a queue of
//! one place costs as little as a place among many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::lock::{Mode, Occupancy};
use crate::rules::key_ref::KeyId;
use crate::rules::place::{PlaceId, Spot, Ticket};

/// A place in the line of a key, by its ticket.
type InLine = (KeyId, Ticket, PlaceId);

/// The places of all keys. Each stands in one of these.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    owns: BTreeSet<(KeyId, Reverse<bool>, Ticket, PlaceId)>,
    converts: BTreeSet<(KeyId, Reverse<u32>, Ticket, PlaceId)>,
    stops: BTreeSet<InLine>,
    /// Absent shares and permits by the number of holders that they tolerate, in the order of their
    /// tickets. The rank of a ticket is the number of those ahead of it. There are at most
    /// `max-absent` of a key.
    passed: BTreeMap<(KeyId, u32), Vec<(Ticket, PlaceId)>>,
}

/// Changes.
impl Order {
    #[inline]
    pub(super) fn add(&mut self, key: KeyId, spot: Spot, ticket: Ticket, id: PlaceId) {
        let is_new = match spot {
            Spot::Nowhere => true,
            Spot::Owns(by) => self.owns.insert((key, by, ticket, id)),
            Spot::Converts(by) => self.converts.insert((key, by, ticket, id)),
            Spot::Stops => self.stops.insert((key, ticket, id)),
            Spot::Passed(limit) => {
                let all = self.passed.entry((key, limit)).or_default();
                let at = all.partition_point(|(other, _)| *other < ticket);
                all.insert(at, (ticket, id));
                true
            }
        };
        debug_assert!(is_new, "a place stands once");
    }

    #[inline]
    pub(super) fn remove(&mut self, key: KeyId, spot: Spot, ticket: Ticket, id: PlaceId) {
        let was_there = match spot {
            Spot::Nowhere => true,
            Spot::Owns(by) => self.owns.remove(&(key, by, ticket, id)),
            Spot::Converts(by) => self.converts.remove(&(key, by, ticket, id)),
            Spot::Stops => self.stops.remove(&(key, ticket, id)),
            Spot::Passed(limit) => self.remove_passed(key, limit, ticket),
        };
        debug_assert!(was_there, "a place stands where it was put");
    }

    fn remove_passed(&mut self, key: KeyId, limit: u32, ticket: Ticket) -> bool {
        let Some(all) = self.passed.get_mut(&(key, limit)) else {
            return false;
        };
        let at = all.binary_search_by_key(&ticket, |(other, _)| *other);
        let was_there = at.map(|at| all.remove(at)).is_ok();
        if all.is_empty() {
            self.passed.remove(&(key, limit));
        }
        was_there
    }
}

/// Questions.
impl Order {
    /// The first place whose token has got a hold and has not been looked at since.
    #[inline]
    pub(super) fn first_owner(&self, key: KeyId) -> Option<PlaceId> {
        let mut here = self.owns_of(key);
        here.next().map(|(_, id)| id)
    }

    fn owns_of(&self, key: KeyId) -> impl Iterator<Item = (Ticket, PlaceId)> + '_ {
        let from = (key, Reverse(true), Ticket(0), PlaceId(0));
        let to = (key, Reverse(false), Ticket::END, PlaceId(u32::MAX));
        let here = (!self.owns.is_empty()).then(|| self.owns.range(from..=to));
        here.into_iter()
            .flatten()
            .map(|(_, _, ticket, id)| (*ticket, *id))
    }

    /// The places that convert, in the order in which they are decided.
    pub(super) fn converts(&self, key: KeyId) -> impl Iterator<Item = PlaceId> + '_ {
        let from = (key, Reverse(u32::MAX), Ticket(0), PlaceId(0));
        let to = (key, Reverse(0), Ticket::END, PlaceId(u32::MAX));
        let here = (!self.converts.is_empty()).then(|| self.converts.range(from..=to));
        here.into_iter().flatten().map(|(.., id)| *id)
    }

    /// The first place that nobody passes, ahead of a ticket.
    pub(super) fn first_stop(&self, key: KeyId, before: Ticket) -> Option<(Ticket, PlaceId)> {
        let (of, ticket, id) = self.stops.range((key, Ticket(0), PlaceId(0))..).next()?;
        (*of == key && *ticket < before).then_some((*ticket, *id))
    }

    fn stops_of(
        &self,
        key: KeyId,
        before: Ticket,
    ) -> impl DoubleEndedIterator<Item = (Ticket, PlaceId)> + '_ {
        let here = (key, Ticket(0), PlaceId(0))..(key, before, PlaceId(0));
        self.stops.range(here).map(|(_, ticket, id)| (*ticket, *id))
    }

    /// How the absent places ahead of a ticket that let others pass count as holders.
    pub(super) fn passed(&self, key: KeyId, before: Ticket) -> Occupancy {
        let mut all = Occupancy::NONE;
        if self.passed.is_empty() {
            return all; // The usual case.
        }
        for ((_, limit), here) in self.passed.range((key, 0)..=(key, Mode::ANY)) {
            let ahead = here.partition_point(|(ticket, _)| *ticket < before);
            if ahead > 0 {
                all.holders = all.holders.saturating_add(ahead);
                all.tolerated = all.tolerated.min(*limit);
            }
        }
        all
    }

    /// The first absent permit of a key.
    pub(super) fn first_permit(&self, key: KeyId) -> Option<(Ticket, PlaceId)> {
        let permits = self.passed.range((key, 0)..(key, Mode::ANY));
        permits.filter_map(|(_, here)| here.first()).min().copied()
    }

    /// The places that do not convert, in the order of their tickets.
    pub(super) fn in_line(&self, key: KeyId) -> impl Iterator<Item = PlaceId> + '_ {
        let passed = self.passed.range((key, 0)..=(key, Mode::ANY));
        let absent = passed.flat_map(|(_, here)| here.iter().copied());
        let mut others: Vec<(Ticket, PlaceId)> = absent.chain(self.owns_of(key)).collect();
        others.sort_unstable();
        let (mut stops, mut others) = (
            self.stops_of(key, Ticket::END).peekable(),
            others.into_iter().peekable(),
        );
        std::iter::from_fn(move || {
            let is_stop = match (stops.peek(), others.peek()) {
                (Some(stop), Some(other)) => stop < other,
                (stop, _) => stop.is_some(),
            };
            let next = if is_stop { stops.next() } else { others.next() };
            next.map(|(_, id)| id)
        })
    }

    /// The place with the earliest ticket.
    pub(super) fn first_of<'o>(
        &'o self,
        key: KeyId,
        ticket_of: impl Fn(PlaceId) -> Option<Ticket> + 'o,
    ) -> Option<(Ticket, PlaceId)> {
        let converts = self.converts(key);
        let converts = converts.filter_map(|id| Some((ticket_of(id)?, id)));
        let passed = match self.passed.is_empty() {
            true => None,
            false => {
                let here = self.passed.range((key, 0)..=(key, Mode::ANY));
                here.filter_map(|(_, here)| here.first().copied()).min()
            }
        };
        let line = self.first_stop(key, Ticket::END).into_iter().chain(passed);
        line.chain(converts).chain(self.owns_of(key)).min()
    }

    /// The places ahead of a ticket that nobody passes, the last one first.
    pub(super) fn stops_ahead(
        &self,
        key: KeyId,
        before: Ticket,
    ) -> impl Iterator<Item = PlaceId> + '_ {
        self.stops_of(key, before).rev().map(|(_, id)| id)
    }
}
