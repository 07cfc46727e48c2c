//! The places of each token, in all queues.

use std::collections::BTreeSet;

use crate::rules::key_ref::KeyId;
use crate::rules::place::{Place, PlaceId, Ticket};

/// All places by the hashes of their tokens, one entry for each key. Different tokens may have the
/// same hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    all: BTreeSet<(u32, KeyId, PlaceId)>,
    /// The places of tokens that wait for other keys, too.
    elsewhere: BTreeSet<(KeyId, Ticket, PlaceId)>,
}

impl Tokens {
    /// The places at a key whose tokens have this hash.
    pub(super) fn at(&self, hash: u32, key: KeyId) -> impl Iterator<Item = PlaceId> + '_ {
        let here = (hash, key, PlaceId(0))..=(hash, key, PlaceId(u32::MAX));
        self.all.range(here).map(|(.., id)| *id)
    }

    /// The places of tokens with this hash. One for several keys comes several times.
    pub(super) fn with_hash(&self, hash: u32) -> impl Iterator<Item = PlaceId> + '_ {
        let from = (hash, KeyId(0), PlaceId(0));
        let to = (hash, KeyId(u32::MAX), PlaceId(u32::MAX));
        self.all.range(from..=to).map(|(.., id)| *id)
    }

    /// The places at a key, ahead of a ticket, whose tokens wait for other keys, too.
    pub(super) fn elsewhere_too(
        &self,
        key: KeyId,
        before: Ticket,
    ) -> impl Iterator<Item = PlaceId> + '_ {
        let here = (key, Ticket(0), PlaceId(0))..(key, before, PlaceId(0));
        self.elsewhere.range(here).map(|(.., id)| *id)
    }

    pub(super) fn insert<L>(&mut self, place: &Place<L>, id: PlaceId) {
        let keys = place.ids.iter();
        self.all.extend(keys.map(|key| (place.hash, *key, id)));
    }

    pub(super) fn remove<L>(&mut self, place: &Place<L>, id: PlaceId) {
        for key in &place.ids {
            let was_there = self.all.remove(&(place.hash, *key, id));
            debug_assert!(was_there, "a place that its token does not have");
        }
        self.set_elsewhere(place, id, false);
    }

    /// Whether any token waits for other keys, too.
    pub(super) fn is_any_elsewhere(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Notes whether the token of a place waits for other keys, too.
    #[inline]
    pub(super) fn set_elsewhere<L>(&mut self, place: &Place<L>, id: PlaceId, is_elsewhere: bool) {
        if !is_elsewhere && self.elsewhere.is_empty() {
            return; // The usual case.
        }
        for key in &place.ids {
            let entry = (*key, place.ticket, id);
            match is_elsewhere {
                true => self.elsewhere.insert(entry),
                false => self.elsewhere.remove(&entry),
            };
        }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.all.len(), self.elsewhere.len())
    }
}
