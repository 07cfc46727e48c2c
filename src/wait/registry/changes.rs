//! Changes of whole databases: FLUSHALL, FLUSHDB, SWAPDB.
//!
//! There may be a million waited keys, so such a change marks none of them. It only gets a number.
//! A queue knows the last change that it has followed, and follows the later ones when its key is
//! looked at next. The timer goes through all places, a few at a time, so that each queue follows
//! soon (`Registry::follow_next`).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use super::Registry;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId, Places};

/// The changes of all databases.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Changes<S> {
    /// The number of the last one, from 1.
    pub(super) last: u32,
    of_dbs: HashMap<i32, DbChange, S>,
    /// The way through all places since the last change. When it is over, no queue is behind.
    lap: Lap,
}

/// The last changes of a database.
#[derive(Clone, Copy, Debug, Default)]
struct DbChange {
    /// Each of its keys may have lost its lock, or got another one.
    replaced: u32,
    /// It was emptied.
    emptied: u32,
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
    pub(super) fn begin<L>(&mut self, places: &Places<L>, most: usize) {
        self.slots = places.slots();
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
    pub(super) fn is_of_the_past<L>(&self, places: &Places<L>) -> bool {
        self.slots > places.slots()
    }

    /// The place where it is now. `None` where there is none.
    pub(super) fn here<'p, L>(&self, places: &'p Places<L>) -> Option<(PlaceId, &'p Place<L>)> {
        places.nth(self.at)
    }

    /// Goes on by one slot.
    pub(super) fn go_on<L>(&mut self, places: &Places<L>) {
        let slots = match self.left {
            0 => places.slots(),
            _ => self.slots.min(places.slots()),
        };
        self.left = self.left.saturating_sub(1);
        self.at = match self.at.saturating_add(1) {
            next if next < slots => next,
            _ => 0,
        };
    }
}

impl<S: BuildHasher> Changes<S> {
    fn of(&self, db: i32) -> DbChange {
        self.of_dbs.get(&db).copied().unwrap_or_default()
    }

    /// Whether no queue is behind.
    const fn are_followed(&self) -> bool {
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

/// Changes of whole databases.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether the queues of some keys may have to follow changes of their databases yet.
    pub fn is_behind(&self) -> bool {
        !self.changes.are_followed() && !self.is_empty()
    }
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// All keys of a database, or of all, may have lost their locks or got others.
    pub fn db_replaced(&mut self, db: Option<i32>) {
        self.change_db(db, |change, number| change.replaced = number);
    }

    /// A database, or all, was emptied. The places at which nobody listens end with it.
    pub fn db_emptied(&mut self, db: Option<i32>) {
        self.change_db(db, |change, number| {
            (change.replaced, change.emptied) = (number, number);
        });
    }

    fn change_db(&mut self, db: Option<i32>, act: impl Fn(&mut DbChange, u32)) {
        let is_it = |number: &i32| db.is_none_or(|db| db == *number);
        let is_waited_for = |db: &i32| self.queues.of_db(*db).next().is_some();
        let waited = self.queues.dbs().filter(is_waited_for);
        let dbs: Vec<i32> = waited.filter(is_it).collect();
        if dbs.is_empty() {
            return;
        }
        let changes = &mut self.changes;
        changes.last = changes.last.saturating_add(1);
        for db in dbs {
            act(changes.of_dbs.entry(db).or_default(), changes.last);
        }
        changes.lap.begin(&self.places, usize::MAX);
    }

    /// Has the queues of the next place follow the changes. The caller calls it until
    /// [`Registry::is_behind`] is false.
    pub fn follow_next(&mut self) {
        let here = self.changes.lap.here(&self.places);
        let keys = here.into_iter().flat_map(|(_, place)| place.keys());
        let keys: Vec<KeyRef> = keys.cloned().collect();
        for key in keys {
            self.follow_now(&key);
        }
        self.changes.lap.go_on(&self.places);
    }

    /// Has the queue of a key follow the changes of its database: it is marked, and the places end
    /// at which nobody has listened since the database was emptied.
    #[inline]
    pub fn follow_changes(&mut self, key: &KeyRef) {
        if self.is_behind() {
            self.follow_now(key);
        }
    }

    #[cold]
    fn follow_now(&mut self, key: &KeyRef) {
        let (change, last) = (self.changes.of(key.db), self.changes.last);
        let Some(queue) = self.queues.of_mut(key) else {
            return;
        };
        if queue.follow(last) >= change.replaced {
            return;
        }
        queue.lock_replaced();
        self.mark(key.db, &key.name);
        let queue = self.queues.of(key);
        let ids = queue.into_iter().flat_map(|queue| queue.iter());
        let is_over = |id: &PlaceId| {
            let place = self.places.get(*id);
            place.is_some_and(|place| self.changes.end(place))
        };
        let over: Vec<PlaceId> = ids.filter(is_over).collect();
        for id in over {
            // Nobody is to be told.
            drop(self.end(id));
        }
    }

    /// Has two databases change places. Waiters stay with the number of theirs. A marked key counts
    /// as marked in both, and all keys of both that are waited for as replaced.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        self.marks.swap_dbs(one, other);
        self.deliveries.swap_dbs(one, other);
        self.db_replaced(Some(one));
        self.db_replaced(Some(other));
    }
}
