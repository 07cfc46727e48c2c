//! Bounds of how early places stand, for the search for the longest waits.

use crate::wait::place::{PlaceId, Ticket};

/// How many places with successive numbers have a bound together.
pub(super) const SPAN: usize = if cfg!(test) { 2 } else { 512 };

/// No place of a span has an earlier ticket. One that had it may have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest {
    pub(super) bounds: Vec<Ticket>,
}

impl Oldest {
    /// Notes the ticket of a place.
    #[inline]
    pub(super) fn note(&mut self, id: PlaceId, ticket: Ticket) {
        let span = id.index() / SPAN;
        if span >= self.bounds.len() {
            self.bounds.resize(span.saturating_add(1), Ticket::LAST);
        }
        if let Some(bound) = self.bounds.get_mut(span) {
            *bound = ticket.min(*bound);
        }
    }

    /// Notes that there is no place left.
    pub(super) fn clear(&mut self) {
        self.bounds.truncate(1);
    }
}
