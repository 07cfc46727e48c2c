//! Changes of whole databases: FLUSHALL, FLUSHDB, SWAPDB.
//!
//! There may be a million waited keys, so such a change marks none of them. It only gets a number.
//! A queue knows the last change that it has followed, and follows the later ones when its key is
//! looked at next. The timer goes through all places, a few at a time, so that each queue follows
//! soon (`Registry::follow_next`).

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::book::Indexed;
use crate::rules::place::{Place, PlaceId};

/// The changes of all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes<S> {
    /// The number of the last one, from 1.
    pub(super) last: u32,
    pub(super) of_dbs: HashMap<i32, DbChange, S>,
    /// The way through all places since the last change. When it is over, no queue is behind.
    pub(super) lap: Lap,
}

/// The last changes of a database.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DbChange {
    /// Each of its keys may have lost its lock, or got another one.
    pub(super) replaced: u32,
    /// It was emptied.
    pub(super) emptied: u32,
}

/// A way through all places, in a circle: it begins where the last one has ended, so that no place
/// is left out where one way begins before the last is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Lap {
    at: usize,
    left: usize,
    /// How many slots the table had when the way began. It leads through these, also if the table
    /// grows.
    slots: usize,
}

impl Lap {
    /// Begins a way through this many slots of the table of places, or all.
    pub(super) fn begin<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>, most: usize) {
        self.slots = book.slots();
        self.left = self.slots.min(most);
        // The table may have shrunk since.
        if self.at >= self.slots {
            self.at = 0;
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Whether the table has shrunk since the way began: no place of that time is left.
    pub(super) fn is_of_the_past<L, S: BuildHasher>(&self, book: &Indexed<L, S>) -> bool {
        self.slots > book.slots()
    }

    /// The place where it is now. `None` where there is none.
    pub(super) fn here<'p, L, S: BuildHasher>(
        &self,
        book: &'p Indexed<L, S>,
    ) -> Option<(PlaceId, &'p Place<L>)> {
        book.nth(self.at)
    }

    /// Goes on by one slot.
    pub(super) fn go_on<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        let slots = match self.left {
            0 => book.slots(),
            _ => self.slots.min(book.slots()),
        };
        self.left = self.left.saturating_sub(1);
        self.at = match self.at.saturating_add(1) {
            next if next < slots => next,
            _ => 0,
        };
    }
}

impl<S: BuildHasher> Changes<S> {
    pub(super) fn of(&self, db: i32) -> DbChange {
        self.of_dbs.get(&db).copied().unwrap_or_default()
    }

    /// Whether no queue is behind.
    pub(super) const fn are_followed(&self) -> bool {
        self.lap.is_over()
    }

    /// Whether nobody has listened at a place since before its database was emptied, so that it is
    /// over.
    pub(super) fn end<L>(&self, place: &Place<L>) -> bool {
        let emptied = || self.of(place.keys.first().db).emptied;
        !self.are_followed() && place.is_absent_since_before(emptied())
    }

    /// Whether a queue that has followed this change is behind.
    #[cfg(test)]
    pub(super) fn is_behind(&self, db: i32, seen: u32) -> bool {
        seen < self.of(db).replaced
    }
}
