//! The book: everything that waits, and the tables that answer the questions of the rules. It has
//! all containers of waiting, and decides nothing.

pub(super) mod bytes;
mod change;
pub(super) mod counts;
#[cfg(test)]
mod flat;
pub(super) mod listeners;
mod load;
mod order;
pub(super) mod queues;
pub(super) mod results;
pub(super) mod slots;
mod tokens;
pub(super) mod users;

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use slab::Slab;

use self::listeners::Listeners;
use self::load::Load;
use self::order::Order;
use self::queues::Queues;
use self::results::Results;
use self::tokens::Tokens;
use crate::lock::{CompactToken, Occupancy, Token};
use crate::rules::key_ref::{KeyId, KeyRef};
use crate::rules::keys::Keys;
#[cfg(test)]
use crate::rules::place::TableKeys;
use crate::rules::place::{Place, PlaceId, Ticket};
use crate::rules::Book;

/// All places, by every question that is asked about them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Indexed<L, S> {
    /// Exactly the places in all other tables. They are on the heap, so that a table that grows
    /// moves little.
    places: Slab<Box<Place<L>>>,
    /// How many slots of that table have been used since it was empty.
    slots: usize,
    pub(super) queues: Queues<S>,
    order: Order,
    tokens: Tokens,
    /// When the places are to be looked at: one entry for each, when its first request times out or
    /// its grace is over, unless that is never. In microseconds of the monotonic clock.
    due: BTreeSet<(u64, PlaceId)>,
    /// Exactly what listens at the places.
    pub(super) listeners: Listeners<L, S>,
    /// The sums over the places.
    pub(super) load: Load<S>,
    /// The places that a result answers.
    pub(super) results: Results,
    /// The keys of places for several keys that have ended. Those behind them may be next.
    ended: Vec<Keys>,
    last_ticket: u64,
    /// The number of the last change of a whole database, from 1.
    pub(super) last_change: u32,
    hasher: S,
}

impl<L, S: Default> Default for Indexed<L, S> {
    fn default() -> Self {
        Self {
            places: Slab::new(),
            slots: 0,
            queues: Queues::default(),
            order: Order::default(),
            tokens: Tokens::default(),
            due: BTreeSet::new(),
            listeners: Listeners::default(),
            load: Load::default(),
            results: Results::default(),
            ended: Vec::new(),
            last_ticket: 0,
            last_change: 0,
            hasher: S::default(),
        }
    }
}

impl PlaceId {
    fn of(index: usize) -> Self {
        debug_assert!(u32::try_from(index).is_ok());
        Self(index as u32)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Questions of those who know the tables.
impl<L, S: BuildHasher> Indexed<L, S> {
    /// The hash of a token.
    fn hash_of(&self, token: Token<'_>) -> u32 {
        // The low bits are as good as the others.
        (self.hasher.hash_one(token.as_bytes()) & u64::from(u32::MAX)) as u32
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many slots the table of places has. Each place has one of them.
    pub(super) const fn slots(&self) -> usize {
        self.slots
    }

    /// The place in the `n`th slot.
    pub(super) fn nth(&self, n: usize) -> Option<(PlaceId, &Place<L>)> {
        let place = self.places.get(n)?;
        Some((PlaceId::of(n), place))
    }

    /// The places of a token. One for several keys comes several times.
    fn places_of_hash<'b>(
        &'b self,
        hash: u32,
        token: &'b CompactToken,
    ) -> impl Iterator<Item = (PlaceId, &'b Place<L>)> {
        let ids = self.tokens.with_hash(hash);
        let places = ids.filter_map(|id| Some((id, self.place(id)?)));
        places.filter(move |(_, place)| place.token == *token)
    }

    /// When the first request times out, or the first grace is over.
    pub(super) fn due(&self) -> Option<(u64, PlaceId)> {
        self.due.first().copied()
    }

    /// All places of a key in the order in which they stand, and those that own before they are
    /// looked at by their tickets.
    pub(super) fn places_at(&self, key: KeyId) -> impl Iterator<Item = PlaceId> + '_ {
        let converts = self.order.converts(key);
        converts.chain(self.order.in_line(key))
    }

    /// The place of a key with the earliest ticket.
    pub(super) fn first_at(&self, key: KeyId) -> Option<PlaceId> {
        let ticket_of = |id| self.place(id).map(|place| place.ticket);
        self.order.first_of(key, ticket_of).map(|(_, id)| id)
    }

    /// How many bytes all of it takes, nearly.
    pub(super) const fn bytes(&self) -> usize {
        let bytes = self.load.bytes.saturating_add(self.queues.bytes);
        let bytes = bytes.saturating_add(self.results.bytes);
        bytes.saturating_add(self.listeners.bytes)
    }
}

#[cfg(test)]
impl<L: Copy + Eq + std::hash::Hash, S: BuildHasher> Indexed<L, S> {
    /// Whether every table has exactly what the places say. Returns them.
    pub(super) fn assert_tight(&self) -> Vec<PlaceId> {
        use crate::rules::place::Listener;

        let all: Vec<_> = (0..self.slots()).filter_map(|n| self.nth(n)).collect();
        assert_eq!(all.len(), self.len());
        let (mut counts, mut clients, mut lingering, mut due) =
            (counts::Counts::default(), 0, 0, 0);
        let (mut entries, mut elsewhere, mut for_several) = (0, 0, 0);
        let mut channels = BTreeSet::new();
        for (id, place) in &all {
            let outline = place.table_keys();
            assert!(outline.kind.is_some(), "a place that is over");
            counts.change(&TableKeys::NONE, &outline);
            for_several += usize::from(place.is_for_several_keys());
            due += usize::from(outline.due_us.is_some());
            if let Some(due_us) = outline.due_us {
                assert!(self.due.contains(&(due_us, *id)));
            }
            let others = self.places_of_hash(place.hash, &place.token);
            let has_others = others.filter(|(other, _)| other != id).count() > 0;
            for (key, name) in place.ids.iter().zip(place.keys.iter()) {
                assert_eq!(self.queues.id_of(name), Some(*key));
                let text = place.token.text();
                assert_eq!(self.of_token(*key, text.as_token()), Some(*id));
                assert_eq!(self.places_at(*key).filter(|other| other == id).count(), 1);
                entries += 1;
                elsewhere += usize::from(has_others || place.is_for_several_keys());
            }
            for request in &place.requests {
                match &request.listener {
                    Listener::Client(client) => {
                        clients += 1;
                        assert_eq!(self.listeners.of_client(*client), Some((*id, request.seq)));
                    }
                    Listener::Channel(name) => {
                        channels.insert((name.clone(), *id));
                        lingering += usize::from(self.listeners.lingers(request.seq));
                    }
                }
            }
        }
        for (key, queue) in self.queues.iter() {
            let mut counts = counts::Counts::default();
            for id in self.places_at(key) {
                counts.change(&TableKeys::NONE, &self.place(id).unwrap().table_keys());
            }
            assert_eq!(queue.counts, counts);
        }
        self.queues.assert_tight();
        self.results.assert_tight(|id| self.place(id));
        assert_eq!(self.load.counts, counts);
        assert_eq!(self.load.for_several, for_several);
        assert_eq!(self.listeners.counts(), (clients, lingering));
        assert_eq!(self.listeners.pairs(), channels);
        assert_eq!(self.due.len(), due);
        assert_eq!(self.tokens.counts(), (entries, elsewhere));
        all.into_iter().map(|(id, _)| id).collect()
    }
}

/// The questions of the rules.
impl<L, S: BuildHasher> Book for Indexed<L, S> {
    type Client = L;

    fn key(&self, key: KeyId) -> Option<&KeyRef> {
        self.queues.get(key).map(|queue| &queue.key)
    }

    fn place(&self, id: PlaceId) -> Option<&Place<L>> {
        self.places.get(id.index()).map(|place| &**place)
    }

    fn of_token(&self, key: KeyId, token: Token<'_>) -> Option<PlaceId> {
        let mut ids = self.tokens.at(self.hash_of(token), key);
        ids.find(|id| self.place(*id).is_some_and(|place| place.token.is(token)))
    }

    fn first_owner(&self, key: KeyId) -> Option<PlaceId> {
        self.order.first_owner(key)
    }

    fn converts(&self, key: KeyId) -> impl Iterator<Item = PlaceId> {
        self.order.converts(key)
    }

    fn first_stop(&self, key: KeyId, before: Ticket) -> Option<PlaceId> {
        self.order.first_stop(key, before).map(|(_, id)| id)
    }

    fn passed(&self, key: KeyId, before: Ticket) -> Occupancy {
        self.order.passed(key, before)
    }

    fn first_permit(&self, key: KeyId) -> Option<PlaceId> {
        self.order.first_permit(key).map(|(_, id)| id)
    }

    fn places_of<'b>(&'b self, token: &'b CompactToken) -> impl Iterator<Item = PlaceId> {
        let places = self.places_of_hash(self.hash_of(token.text().as_token()), token);
        places.map(|(id, _)| id)
    }

    fn elsewhere_too(&self, key: KeyId, before: Ticket) -> impl Iterator<Item = PlaceId> {
        self.tokens.elsewhere_too(key, before)
    }

    fn stops_ahead(&self, key: KeyId, before: Ticket) -> impl Iterator<Item = PlaceId> {
        self.order.stops_ahead(key, before)
    }
}
