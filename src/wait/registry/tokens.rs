//! The places of a token, in all queues.
//!
//! A token rarely has more than one, and there may be a million places. So a table has one small
//! entry for each hash of a token. Tokens with several places, and tokens with the same hash, are
//! in a table of their own.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use super::leaving::SPARE_KEYS;
use super::Registry;
use crate::lock::CompactToken;
use crate::wait::place::{Place, PlaceId};
use crate::wait::queue::in_the_way::{Budget, InTheWay, Spot};
use crate::wait::queue::WaitQueue;

impl<L, S: BuildHasher> Registry<L, S> {
    /// The places of a token.
    pub(in crate::wait) fn places_of<'a>(
        &'a self,
        token: &'a CompactToken,
    ) -> impl Iterator<Item = (PlaceId, &'a Place<L>)> {
        let hash = self.hash_of(token);
        let one = self.by_token.get(&hash);
        let more = one
            .is_none()
            .then(|| self.by_shared_hash.get(&hash))
            .flatten();
        let ids = one.into_iter().chain(more.into_iter().flatten());
        let places = ids.filter_map(|id| Some((*id, self.places.get(*id)?)));
        places.filter(move |(_, place)| place.token == *token)
    }

    pub(in crate::wait) fn place(&self, id: PlaceId) -> Option<&Place<L>> {
        self.places.get(id)
    }

    /// All places but those for this key.
    pub(in crate::wait) fn places_elsewhere<'a>(
        &'a self,
        db: i32,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'a Place<L>> {
        let queues = self.queues.iter();
        let keys = queues.flat_map(|(number, queues)| queues.iter().map(|key| (*number, key)));
        let keys = keys.filter(move |(number, key)| *number != db || **key.0 != *name);
        let ids = keys.flat_map(|(_, (_, key))| key.queue.iter());
        ids.filter_map(|id| self.places.get(id))
    }

    pub(in crate::wait) fn has_tokens_with_others(&self, queue: &WaitQueue) -> bool {
        queue.has_tokens_with_others(&self.places)
    }

    /// What stands in the way of a spot in the queue of a key: see [`WaitQueue::in_the_way_of`].
    pub(in crate::wait) fn in_the_way_of(
        &self,
        (queue, name): (&WaitQueue, &[u8]),
        spot: &Spot,
        asker: Option<&Spot>,
        budget: &mut Budget,
    ) -> Option<InTheWay> {
        queue.in_the_way_of(spot, asker, name, &self.places, budget)
    }

    /// Adds a new place to those of its token.
    pub(super) fn link(&mut self, id: PlaceId) {
        let Some(place) = self.places.get(id) else {
            return;
        };
        let hash = self.hash_of(&place.token);
        if let Some(shared) = self.by_shared_hash.get_mut(&hash) {
            shared.insert(id);
        } else if let Some(first) = self.by_token.insert(hash, id) {
            self.by_token.remove(&hash);
            self.by_shared_hash
                .insert(hash, BTreeSet::from([first, id]));
        } else {
            return self.set_has_others(id, false); // The usual case.
        }
        let token = self.places.get(id).map(|place| &place.token);
        let mut all = token.into_iter().flat_map(|token| self.places_of(token));
        // With two others or more, those know.
        let other = all.find(|(other, _)| *other != id).map(|(other, _)| other);
        drop(all);
        self.set_has_others(id, other.is_some());
        if let Some(other) = other {
            self.set_has_others(other, true);
        }
    }

    /// Takes a place that ends out of those of its token.
    pub(super) fn unlink(&mut self, id: PlaceId) {
        let Some(place) = self.places.get(id) else {
            return;
        };
        let (hash, has_others) = (self.hash_of(&place.token), place.has_others());
        if self.by_token.remove(&hash).is_some() {
            if self.by_token.is_empty() && self.by_token.capacity() > SPARE_KEYS {
                self.by_token.shrink_to(SPARE_KEYS);
            }
        } else if let Some(shared) = self.by_shared_hash.get_mut(&hash) {
            shared.remove(&id);
            if let (1, Some(last)) = (shared.len(), shared.first()) {
                self.by_token.insert(hash, *last);
                self.by_shared_hash.remove(&hash);
            }
        }
        if has_others {
            self.note_left_alone(id);
        }
    }

    /// Notes that the other place of this one's token is the only one now, if it is.
    fn note_left_alone(&mut self, id: PlaceId) {
        let Some(place) = self.places.get(id) else {
            return;
        };
        let mut left = self.places_of(&place.token).map(|(id, _)| id);
        let (first, second) = (left.next(), left.next());
        drop(left);
        if let (Some(last), None) = (first, second) {
            self.set_has_others(last, false);
        }
    }

    fn set_has_others(&mut self, id: PlaceId, has_others: bool) {
        let Some(place) = self.places.get_mut(id) else {
            return;
        };
        let has_others = has_others || place.is_for_several_keys();
        if !place.set_has_others(has_others) {
            return;
        }
        for key_ref in place.keys() {
            let queues = self.queues.get_mut(&key_ref.db);
            if let Some(key) = queues.and_then(|queues| queues.get_mut(&key_ref.name)) {
                key.queue.set_has_others(place.ticket, has_others);
            }
        }
    }

    fn hash_of(&self, token: &CompactToken) -> u32 {
        let hash = self.by_token.hasher().hash_one(token);
        // The low bits are as good as the others.
        (hash & u64::from(u32::MAX)) as u32
    }

    #[cfg(test)]
    pub(super) fn assert_tokens_tight(&self) {
        let alone = self.by_token.values().copied();
        let shared = self.by_shared_hash.values();
        assert!(shared.clone().all(|ids| ids.len() > 1));
        let ids: Vec<PlaceId> = alone.chain(shared.flatten().copied()).collect();
        for id in &ids {
            let place = self.places.get(*id).unwrap();
            let all: Vec<_> = self.places_of(&place.token).map(|(id, _)| id).collect();
            assert!(all.contains(id));
            let has_others = all.len() > 1 || place.is_for_several_keys();
            assert_eq!(place.has_others(), has_others);
        }
        assert_eq!(ids.len(), self.places.len());
    }
}
