//! The book: everything that waits, and the tables that answer the questions of the rules. It has
//! all containers of waiting, and decides nothing.

pub(super) mod bytes;
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
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use slab::Slab;
use smallvec::SmallVec;

use self::listeners::Listeners;
use self::load::Load;
use self::order::Order;
use self::queues::Queues;
use self::results::Results;
use self::tokens::Tokens;
use crate::lock::{CompactToken, Occupancy, Token};
#[cfg(test)]
use crate::lock::{Lock, Now};
use crate::planted::planted;
use crate::rules::key_ref::{KeyId, KeyRef};
use crate::rules::keys::Keys;
use crate::rules::place::{
    Extra, Linger, Listener, Place, PlaceId, Request, Seq, Stands, TableKeys, Ticket, UserId, NEVER,
};
#[cfg(test)]
use crate::rules::turn;
use crate::rules::{Book, BookMut};

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

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> BookMut for Indexed<L, S> {
    fn key_id(&self, key: &KeyRef) -> Option<KeyId> {
        self.queues.id_of(key)
    }

    fn all_at(&self, key: KeyId) -> impl Iterator<Item = PlaceId> + '_ {
        self.places_at(key)
    }

    fn counts_at(&self, key: KeyId) -> (usize, usize) {
        let queue = self.queues.get(key);
        queue.map_or((0, 0), |queue| {
            (queue.counts.all(), queue.counts.absent as usize)
        })
    }

    fn first_due(&self) -> Option<(u64, PlaceId)> {
        self.due()
    }

    fn result_of(&self, id: PlaceId) -> Option<&Rc<[u8]>> {
        self.results.of_place(id)
    }

    fn last_change(&self) -> u32 {
        self.last_change
    }

    fn open(&mut self, keys: &Keys, token: Token<'_>, now_us: u64) -> PlaceId {
        self.last_ticket = match planted("the-newest-first") {
            true => self.last_ticket.checked_sub(1).unwrap_or(u64::MAX >> 1),
            false => self.last_ticket.saturating_add(1),
        };
        let mut place = Place {
            ticket: Ticket(self.last_ticket),
            keys: keys.map(|key| self.queues.shared(key)),
            ids: SmallVec::new(),
            token: token.into(),
            hash: self.hash_of(token),
            since_us: now_us,
            requests: SmallVec::new(),
            kept: None,
            until_us: NEVER,
            since_change: 0,
            user: None,
            uncounted_us: now_us,
            stands: Stands::InLine,
        };
        for key in place.keys.iter() {
            place.ids.push(self.queues.enter(key));
        }
        self.load.add(&place);
        let id = PlaceId::of(self.places.insert(Box::new(place)));
        self.slots = self.slots.max(id.index().saturating_add(1));
        let Some(place) = self.places.get(id.index()) else {
            return id;
        };
        self.tokens.insert(place, id);
        let mut others = self.places_of_hash(place.hash, &place.token);
        let other = others
            .find(|(other, _)| *other != id)
            .map(|(other, _)| other);
        drop(others);
        let is_elsewhere = other.is_some() || place.is_for_several_keys();
        self.tokens.set_elsewhere(place, id, is_elsewhere);
        // With two others or more, those know.
        if let Some((other, id)) = other.and_then(|id| Some((self.places.get(id.index())?, id))) {
            self.tokens.set_elsewhere(other, id, true);
        }
        id
    }

    fn change<R>(&mut self, id: PlaceId, act: impl FnOnce(&mut Place<L>) -> R) -> Option<R> {
        let place = self.places.get_mut(id.index())?;
        let before = place.table_keys();
        let result = act(place);
        let after = place.table_keys();
        if before.due_us != after.due_us && !planted("timeouts-are-forgotten") {
            if let Some(before_us) = before.due_us {
                self.due.remove(&(before_us, id));
            }
            if let Some(after_us) = after.due_us {
                self.due.insert((after_us, id));
            }
        }
        self.load.change(&before, &after);
        let ticket = place.ticket;
        for key in &place.ids {
            if before.spot != after.spot {
                self.order.remove(*key, before.spot, ticket, id);
                self.order.add(*key, after.spot, ticket, id);
            }
            if let Some(queue) = self.queues.get_mut(*key) {
                queue.counts.change(&before, &after);
            }
        }
        if !self.results.is_empty() {
            self.results.follow(id, place);
        }
        Some(result)
    }

    fn rename(&mut self, id: PlaceId, keys: &Keys) {
        let ids: Option<_> = keys.iter().map(|key| self.queues.id_of(key)).collect();
        let keys = keys.map(|key| self.queues.shared(key));
        if let (Some(place), Some(ids)) = (self.places.get_mut(id.index()), ids) {
            (place.keys, place.ids) = (keys, ids);
        }
    }

    fn keep(&mut self, id: PlaceId, result: Option<Rc<[u8]>>, act: impl FnOnce(&mut Place<L>)) {
        self.results.keep(id, result);
        self.change(id, act);
    }

    fn next_seq(&mut self) -> Seq {
        self.listeners.next_seq()
    }

    fn user(&mut self, name: &[u8]) -> UserId {
        self.load.users.number(name)
    }

    fn put(
        &mut self,
        id: PlaceId,
        (mut request, extra): (Request<L>, Extra),
        replaces: Option<Seq>,
        act: impl FnOnce(&mut Place<L>, Request<L>),
    ) -> Option<(Request<L>, Extra)> {
        // The new one first: it may be the same user.
        if let Some(user) = request.user {
            self.load.users.add(user);
        }
        if let Listener::Channel(name) = &mut request.listener {
            *name = self.listeners.shared(name);
        }
        let (seq, listener) = (request.seq, request.listener.clone());
        if let Some(result) = extra.result {
            self.results.add(id, seq, result);
        }
        let replaced = self.change(id, |place| {
            let replaced = replaces.and_then(|seq| place.take(seq));
            act(place, request);
            replaced
        });
        let replaced = replaced.flatten().map(|request| {
            let result = self.results.take(id, request.seq);
            let linger = self.forget(id, &request);
            (request, Extra { linger, result })
        });
        self.listeners.insert(id, seq, listener, extra.linger);
        replaced
    }

    fn take<R>(
        &mut self,
        id: PlaceId,
        seq: Seq,
        keeps: bool,
        act: impl FnOnce(&mut Place<L>, &Request<L>) -> R,
    ) -> Option<(Request<L>, Extra, R)> {
        let result = self.results.take(id, seq);
        if keeps {
            self.results.keep(id, result.clone());
        }
        let taken = self.change(id, |place| {
            let request = place.take(seq)?;
            let answer = act(place, &request);
            Some((request, answer))
        });
        let (request, answer) = taken??;
        let linger = self.forget(id, &request);
        Some((request, Extra { linger, result }, answer))
    }

    fn close(&mut self, id: PlaceId) {
        let Some(place) = self.places.try_remove(id.index()) else {
            return;
        };
        debug_assert_eq!(
            place.table_keys(),
            TableKeys::NONE,
            "a place that is not over"
        );
        let was_elsewhere = self.tokens.is_any_elsewhere();
        self.tokens.remove(&place, id);
        self.load.remove(&place);
        for key in &place.ids {
            self.queues.leave(*key);
        }
        if was_elsewhere {
            self.may_be_alone(&place);
        }
        if self.places.is_empty() {
            self.slots = 0;
            self.places.clear(); // The numbers begin anew.
            if self.places.capacity() > queues::SPARE {
                self.places.shrink_to_fit();
            }
        }
        if place.is_for_several_keys() {
            self.ended.push(place.keys);
        }
    }

    fn set_replaced(&mut self, key: KeyId, is_replaced: bool) -> bool {
        let queue = self.queues.get_mut(key);
        queue.is_some_and(|queue| std::mem::replace(&mut queue.is_replaced, is_replaced))
    }

    #[cfg(test)]
    fn check(&self, key: KeyId, lock: Option<&Lock>, now: Now, next: Option<turn::Next>) {
        if self.len() < 50 {
            assert_eq!(next, turn::next(&self.flat(), key, lock, now));
        }
    }
}

/// Changes.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Indexed<L, S> {
    /// Forgets a request that has left its place. Returns what its hold is bound to.
    fn forget(&mut self, id: PlaceId, request: &Request<L>) -> Option<Linger> {
        if let Some(user) = request.user {
            self.load.users.remove(user);
        }
        self.listeners.remove(id, request.seq, &request.listener)
    }

    /// The keys of places for several keys that have ended since.
    pub(super) fn take_ended(&mut self) -> Vec<Keys> {
        std::mem::take(&mut self.ended)
    }

    /// The last ticket that a place has got.
    pub(super) const fn last_ticket(&self) -> Ticket {
        Ticket(self.last_ticket)
    }
}

impl<L, S: BuildHasher> Indexed<L, S> {
    /// The last other place of the token of a place that has ended may be the only one now.
    fn may_be_alone(&mut self, ended: &Place<L>) {
        let mut left = self.places_of_hash(ended.hash, &ended.token);
        let first = left.next();
        let second = left.find(|(id, _)| first.is_some_and(|(first, _)| first != *id));
        let last = first.filter(|_| second.is_none()).map(|(id, _)| id);
        drop(left);
        if let Some((other, last)) = last.and_then(|id| Some((self.places.get(id.index())?, id))) {
            let is_elsewhere = other.is_for_several_keys();
            self.tokens.set_elsewhere(other, last, is_elsewhere);
        }
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
            for (key, name) in place.ids.iter().zip(place.keys()) {
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
