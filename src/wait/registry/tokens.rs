//! The places of each token, in all queues.
//!
//! A token rarely has more than one, and there may be a million places. So a table has one small
//! entry for each hash of a token. Tokens with several places, and tokens with the same hash, are
//! in a table of their own.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

use super::queues::SPARE_KEYS;
use super::Registry;
use crate::lock::CompactToken;
use crate::wait::place::{Place, PlaceId, Places};

/// All places by the hashes of their tokens.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Tokens<S> {
    /// Those whose hash no other place has.
    alone: HashMap<u32, PlaceId, S>,
    /// The other ones: two or more for each hash.
    together: HashMap<u32, BTreeSet<PlaceId>, S>,
}

impl<S: BuildHasher> Tokens<S> {
    /// The places of a token.
    pub(super) fn places_of<'a, L>(
        &'a self,
        token: &'a CompactToken,
        places: &'a Places<L>,
    ) -> impl Iterator<Item = (PlaceId, &'a Place<L>)> {
        let hash = self.hash_of(token);
        let one = self.alone.get(&hash);
        let more = one.is_none().then(|| self.together.get(&hash)).flatten();
        let ids = one.into_iter().chain(more.into_iter().flatten());
        let places = ids.filter_map(|id| Some((*id, places.get(*id)?)));
        places.filter(move |(_, place)| place.token == *token)
    }

    /// Adds a place. Whether no other place has its hash.
    fn insert(&mut self, token: &CompactToken, id: PlaceId) -> bool {
        let hash = self.hash_of(token);
        if let Some(together) = self.together.get_mut(&hash) {
            together.insert(id);
        } else if let Some(first) = self.alone.insert(hash, id) {
            self.alone.remove(&hash);
            self.together.insert(hash, BTreeSet::from([first, id]));
        } else {
            return true;
        }
        false
    }

    fn remove(&mut self, token: &CompactToken, id: PlaceId) {
        let hash = self.hash_of(token);
        if self.alone.remove(&hash).is_some() {
            if self.alone.is_empty() && self.alone.capacity() > SPARE_KEYS {
                self.alone.shrink_to(SPARE_KEYS);
            }
        } else if let Some(together) = self.together.get_mut(&hash) {
            together.remove(&id);
            if let (1, Some(last)) = (together.len(), together.first()) {
                self.alone.insert(hash, *last);
                self.together.remove(&hash);
            }
        }
    }

    fn hash_of(&self, token: &CompactToken) -> u32 {
        let hash = self.alone.hasher().hash_one(token);
        // The low bits are as good as the others.
        (hash & u64::from(u32::MAX)) as u32
    }
}

impl<L, S: BuildHasher> Registry<L, S> {
    /// Adds a new place to those of its token.
    pub(super) fn link(&mut self, id: PlaceId) {
        let Some(place) = self.places.get(id) else {
            return;
        };
        if self.tokens.insert(&place.token, id) {
            return self.set_has_others(id, false); // The usual case.
        }
        let mut all = self.tokens.places_of(&place.token, &self.places);
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
        self.tokens.remove(&place.token, id);
        if !place.has_others() {
            return;
        }
        // The other place may be the only one now.
        let mut left = self.tokens.places_of(&place.token, &self.places);
        let (first, second) = (left.next(), left.next());
        drop(left);
        if let (Some((last, _)), None) = (first, second) {
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
        for key in place.keys() {
            if let Some(queue) = self.queues.of_mut(key) {
                queue.set_has_others(place.ticket, has_others);
            }
        }
    }
}

#[cfg(test)]
impl<L, S: BuildHasher> Registry<L, S> {
    pub(super) fn assert_tokens_tight(&self) {
        let alone = self.tokens.alone.values().copied();
        let together = self.tokens.together.values();
        assert!(together.clone().all(|ids| ids.len() > 1));
        let ids: Vec<PlaceId> = alone.chain(together.flatten().copied()).collect();
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
