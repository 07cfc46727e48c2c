//! Changes of places. Each keeps all tables true, by the difference of what they depend on.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use smallvec::SmallVec;

use super::{queues, Indexed};
use crate::lock::Token;
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
use crate::rules::BookMut;

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
        let id = PlaceId::of(self.places.vacant_key());
        let other = self.places_of_hash(place.hash, &place.token).next();
        let other = other.map(|(other, _)| other);
        self.tokens.insert(&place, id);
        let is_elsewhere = other.is_some() || place.is_for_several_keys();
        self.tokens.set_elsewhere(&place, id, is_elsewhere);
        // With two others or more, those know.
        if let Some((other, id)) = other.and_then(|id| Some((self.places.get(id.index())?, id))) {
            self.tokens.set_elsewhere(other, id, true);
        }
        self.places.insert(Box::new(place));
        self.slots = self.slots.max(id.index().saturating_add(1));
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
    pub(crate) fn take_ended(&mut self) -> Vec<Keys> {
        std::mem::take(&mut self.ended)
    }

    /// The last ticket that a place has got.
    pub(crate) const fn last_ticket(&self) -> Ticket {
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
