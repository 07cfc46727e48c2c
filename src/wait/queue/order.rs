//! The places of one key in the order of their tickets: a tree with sums, so that no question walks
//! along the line.

use crate::lock::Mode;
use crate::wait::place::{Part, PlaceId, Ticket};
use crate::wait::tree::{Element, Tree};

/// A place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) ticket: Ticket,
    pub(super) id: PlaceId,
    pub(super) part: Part,
}

/// What some places that stand together are for those behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    /// How many of them are absent, and let others pass.
    absent: u32,
    /// The smallest limit of the absent permits; [`Mode::ANY`] where there is none.
    pub(super) limit: u32,
    /// How many of the absent ones stand ahead of the last permit.
    ahead_of_last: u32,
    /// Whether one of them lets nobody pass.
    stops: bool,
}

impl Sum {
    pub(super) fn of(part: Part) -> Self {
        let limit = part.tolerates().unwrap_or(Mode::ANY);
        Self {
            absent: part.tolerates().is_some().into(),
            limit,
            ahead_of_last: 0,
            stops: part == Part::STOPS,
        }
    }

    pub(super) fn absent(&self) -> usize {
        usize::try_from(self.absent).unwrap_or(usize::MAX)
    }

    pub(super) fn ahead_of_last(&self) -> usize {
        usize::try_from(self.ahead_of_last).unwrap_or(usize::MAX)
    }

    pub(super) const fn has_permit(&self) -> bool {
        self.limit < Mode::ANY
    }

    const fn is_no_share(&self) -> bool {
        self.stops || self.has_permit()
    }
}

impl Element for Entry {
    type Key = Ticket;
    type Sum = Sum;

    const MOST: usize = 16;
    const STEP: usize = 4;
    const NONE: Sum = Sum {
        absent: 0,
        limit: Mode::ANY,
        ahead_of_last: 0,
        stops: false,
    };

    fn key(&self) -> Ticket {
        self.ticket
    }

    fn sum(&self) -> Sum {
        Sum::of(self.part)
    }

    fn and(sum: Sum, behind: Sum) -> Sum {
        Sum {
            absent: sum.absent.saturating_add(behind.absent),
            limit: sum.limit.min(behind.limit),
            ahead_of_last: match behind.has_permit() {
                true => sum.absent.saturating_add(behind.ahead_of_last),
                false => sum.ahead_of_last,
            },
            stops: sum.stops || behind.stops,
        }
    }
}

/// All places. Each question and each change takes `O(log n)`.
pub(super) type Order = Tree<Entry>;

impl Order {
    /// Notes what a place is for those behind it.
    pub(super) fn set(&mut self, ticket: Ticket, part: Part) {
        self.change(ticket, |entry| entry.part = part);
    }

    /// The first place that is no absent share.
    pub(super) fn first_but_shares(&self) -> Option<PlaceId> {
        let first = self.first_with(|sum| sum.is_no_share());
        first.map(|entry| entry.id)
    }

    /// The places ahead of a ticket, but only to the first one that lets nobody pass, and that one.
    pub(super) fn ahead_of(&self, ticket: Ticket) -> (Sum, Option<PlaceId>) {
        let (sum, last) = self.sum_ahead_of(ticket, |sum| sum.stops);
        (sum, last.map(|entry| entry.id))
    }

    /// The last absent permit ahead of a ticket.
    pub(super) fn last_permit_ahead_of(&self, ticket: Ticket) -> Option<Entry> {
        self.last_with(ticket, |sum| sum.has_permit())
    }

    /// The places ahead of a ticket, the last one first.
    pub(super) fn ahead_of_in_turn(&self, ticket: Ticket) -> impl Iterator<Item = Entry> + '_ {
        let ahead_of = |ticket| self.last_with(ticket, |_| true);
        std::iter::successors(ahead_of(ticket), move |entry| ahead_of(entry.ticket))
    }
}

#[cfg(test)]
mod tests;
