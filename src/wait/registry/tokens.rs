//! The places of each token, in all queues.

use std::hash::BuildHasher;

use crate::lock::CompactToken;
use crate::wait::place::{Place, PlaceId, Places};
use crate::wait::tree::SortedSet;

/// All places by the hashes of their tokens. Different tokens may have the same hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens<S> {
    /// The newest one stands apart from the others. Often it is the only one.
    newest: Option<(u32, PlaceId)>,
    others: SortedSet<(u32, PlaceId)>,
    hasher: S,
}

impl<S: BuildHasher> Tokens<S> {
    /// The places of a token.
    pub(super) fn places_of<'a, L>(
        &'a self,
        token: &'a CompactToken,
        places: &'a Places<L>,
    ) -> impl Iterator<Item = (PlaceId, &'a Place<L>)> {
        let ids = self.with_hash(self.hash_of(token));
        let places = ids.filter_map(|id| Some((id, places.get(id)?)));
        places.filter(move |(_, place)| place.token == *token)
    }

    /// Adds a place. Whether no other place has its hash.
    pub(super) fn insert(&mut self, token: &CompactToken, id: PlaceId) -> bool {
        let hash = self.hash_of(token);
        let is_alone = self.with_hash(hash).next().is_none();
        if let Some(other) = self.newest.replace((hash, id)) {
            self.others.insert(other);
        }
        is_alone
    }

    pub(super) fn remove(&mut self, token: &CompactToken, id: PlaceId) {
        let place = (self.hash_of(token), id);
        if self.newest.take_if(|newest| *newest == place).is_none() {
            self.others.remove(place);
        }
    }

    fn with_hash(&self, hash: u32) -> impl Iterator<Item = PlaceId> + '_ {
        let has_it = move |(other, _): &(u32, PlaceId)| *other == hash;
        let newest = self.newest.iter().copied().filter(has_it);
        let others = self.others.from((hash, PlaceId::MIN));
        newest.chain(others.take_while(has_it)).map(|(_, id)| id)
    }

    fn hash_of(&self, token: &CompactToken) -> u32 {
        // The low bits are as good as the others.
        (self.hasher.hash_one(token) & u64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
impl<S> Tokens<S> {
    pub(super) fn all(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let newest = self.newest.iter().copied();
        newest.chain(self.others.iter()).map(|(_, id)| id)
    }
}
