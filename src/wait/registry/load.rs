//! How much waits, which is bounded.

use std::hash::BuildHasher;

use crate::wait::bytes;
use crate::wait::place::{Counts, Outline, Place};
use crate::wait::users::{UserId, Users};

/// The sums over all places.
#[derive(Clone, Debug, Default)]
pub(super) struct Load<S> {
    pub(super) counts: Counts,
    /// How much of `counts` belongs to each user.
    pub(super) users: Users<S>,
    /// How many of the places are for several keys.
    pub(super) for_several: usize,
    /// What the places take.
    pub(super) bytes: usize,
}

impl<S: BuildHasher> Load<S> {
    /// Adds a place that comes.
    pub(super) fn add<L>(&mut self, place: &Place<L>) {
        let outline = place.outline();
        self.counts.add(&outline);
        self.set_user(None, outline.user);
        self.bytes = self.bytes.saturating_add(bytes_of(place));
        let is_for_several = usize::from(place.is_for_several_keys());
        self.for_several = self.for_several.saturating_add(is_for_several);
    }

    /// Follows a place that has changed.
    pub(super) fn change(&mut self, before: &Outline, after: &Outline) {
        self.counts.change(before, after);
        self.set_user(before.user, after.user);
    }

    /// Forgets a place that has ended.
    pub(super) fn remove<L>(&mut self, place: &Place<L>) {
        self.bytes = self.bytes.saturating_sub(bytes_of(place));
        let is_for_several = usize::from(place.is_for_several_keys());
        self.for_several = self.for_several.saturating_sub(is_for_several);
    }

    fn set_user(&mut self, before: Option<UserId>, after: Option<UserId>) {
        if before == after {
            return;
        }
        // The new one first: it may be the same request that leaves.
        if let Some(user) = after {
            self.users.add(user);
        }
        if let Some(user) = before {
            self.users.remove(user);
        }
    }
}

fn bytes_of<L>(place: &Place<L>) -> usize {
    bytes::of_place(place.token.heap_bytes(), &place.keys)
}
