//! Each place knows whether its token has other places, too.

use std::hash::BuildHasher;

use super::Registry;
use crate::wait::place::PlaceId;

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
        let ids: Vec<PlaceId> = self.tokens.all().collect();
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
