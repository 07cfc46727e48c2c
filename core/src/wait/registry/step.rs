//! What a step leaves to do before it ends.

use std::collections::BTreeSet;

use crate::rules::key_ref::KeyRef;
use crate::rules::place::{PlaceId, Ticket};

/// What is left.
#[derive(Clone, Debug, Default)]
pub(super) struct StepWork {
    /// Places for several keys whose turn has come at one of them in this step, the oldest first.
    pub(super) candidates: BTreeSet<(Ticket, PlaceId)>,
    /// Keys that are to be served.
    pub(super) unserved: BTreeSet<KeyRef>,
    /// Whether it is being done. Whoever comes in between, by a call of the server that comes back,
    /// leaves all to it.
    pub(super) is_running: bool,
}

impl StepWork {
    pub(super) fn is_empty(&self) -> bool {
        self.candidates.is_empty() && self.unserved.is_empty()
    }
}
