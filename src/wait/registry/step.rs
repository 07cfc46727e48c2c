//! What a step leaves to do before it ends.

use std::collections::BTreeSet;

use crate::wait::key_ref::KeyRef;
use crate::wait::place::{PlaceId, Ticket};

/// What is left.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct StepWork {
    /// Places for several keys whose turn has come at one of them in this step.
    candidates: BTreeSet<(Ticket, PlaceId)>,
    /// Keys that are to be served.
    unserved: BTreeSet<KeyRef>,
}

impl StepWork {
    pub(super) fn is_empty(&self) -> bool {
        self.candidates.is_empty() && self.unserved.is_empty()
    }

    pub(super) fn serve(&mut self, keys: impl IntoIterator<Item = KeyRef>) {
        self.unserved.extend(keys);
    }

    pub(super) fn next_unserved(&mut self) -> Option<KeyRef> {
        self.unserved.pop_first()
    }

    pub(super) fn add_candidate(&mut self, ticket: Ticket, id: PlaceId) {
        self.candidates.insert((ticket, id));
    }

    pub(super) fn remove_candidate(&mut self, ticket: Ticket, id: PlaceId) {
        self.candidates.remove(&(ticket, id));
    }

    /// The oldest one.
    pub(super) fn next_candidate(&mut self) -> Option<(Ticket, PlaceId)> {
        self.candidates.pop_first()
    }
}
