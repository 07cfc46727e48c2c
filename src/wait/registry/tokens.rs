//! The places of each token, in all queues.
//!
//! A token rarely has more than one, and there may be a million places. So a table has one small
//! entry for each hash of a token. Tokens with several places, and tokens with the same hash, are
//! in a table of their own.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

use crate::lock::CompactToken;
use crate::wait::place::{Place, PlaceId, Places};
use crate::wait::table::Table;

/// All places by the hashes of their tokens.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Tokens<S> {
    /// Those whose hash no other place has.
    pub(super) alone: Table<u32, PlaceId, S>,
    /// The other ones: two or more for each hash.
    pub(super) together: HashMap<u32, BTreeSet<PlaceId>, S>,
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
    pub(super) fn insert(&mut self, token: &CompactToken, id: PlaceId) -> bool {
        let hash = self.hash_of(token);
        if let Some(together) = self.together.get_mut(&hash) {
            together.insert(id);
        } else if let Some(first) = self.alone.remove(&hash) {
            self.together.insert(hash, BTreeSet::from([first, id]));
        } else {
            self.alone.insert(hash, id);
            return true;
        }
        false
    }

    pub(super) fn remove(&mut self, token: &CompactToken, id: PlaceId) {
        let hash = self.hash_of(token);
        if self.alone.remove(&hash).is_some() {
            return;
        }
        if let Some(together) = self.together.get_mut(&hash) {
            together.remove(&id);
            if let (1, Some(last)) = (together.len(), together.first()) {
                self.alone.insert(hash, *last);
                self.together.remove(&hash);
            }
        }
    }

    fn hash_of(&self, token: &CompactToken) -> u32 {
        let hash = self.together.hasher().hash_one(token);
        // The low bits are as good as the others.
        (hash & u64::from(u32::MAX)) as u32
    }
}
