//! How much waits, which is bounded.

use std::hash::BuildHasher;

use super::bytes;
use super::users::Users;
use crate::book::counts::Counts;
use crate::rules::place::{Place, TableKeys};

/// The sums over all places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load<S> {
    pub(crate) counts: Counts,
    /// How much of `counts` belongs to each user.
    pub(crate) users: Users<S>,
    /// How many of the places are for several keys.
    pub(crate) for_several: usize,
    /// What the places take.
    pub(crate) bytes: usize,
}

impl<S: BuildHasher> Load<S> {
    /// Adds a place, of which nothing is counted yet.
    pub(super) fn add<L>(&mut self, place: &Place<L>) {
        self.bytes = self.bytes.saturating_add(bytes::of_place(place));
        let is_for_several = usize::from(place.is_for_several_keys());
        self.for_several = self.for_several.saturating_add(is_for_several);
    }

    /// Follows a place that has changed.
    pub(super) fn change(&mut self, before: &TableKeys, after: &TableKeys) {
        self.counts.change(before, after);
        if before.user != after.user {
            // The new one first: it may be the same request that leaves.
            if let Some(user) = after.user {
                self.users.add(user);
            }
            if let Some(user) = before.user {
                self.users.remove(user);
            }
        }
    }

    /// Forgets a place that has ended.
    pub(super) fn remove<L>(&mut self, place: &Place<L>) {
        self.bytes = self.bytes.saturating_sub(bytes::of_place(place));
        let is_for_several = usize::from(place.is_for_several_keys());
        self.for_several = self.for_several.saturating_sub(is_for_several);
    }
}
