//! Ways through all that waits, a little in each turn of the timer: changes of whole databases,
//! hash slots, the patrol.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};

use super::agenda::DbChange;
use super::agenda::Patrol;
use super::agenda::MOST;
use super::Registry;
use crate::book::slots::{SlotQuestion, WaitedSlots};
use crate::rules::key_ref::KeyRef;
use crate::rules::place::PlaceId;
use crate::rules::Book;

/// Changes of whole databases.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether the queues of some keys may have to follow changes of their databases yet.
    pub fn is_behind(&self) -> bool {
        !self.agenda.changes.are_followed() && !self.is_empty()
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
        let waited = self.book.queues.iter().map(|(_, queue)| queue.key.db);
        let dbs: BTreeSet<i32> = waited.filter(is_it).collect();
        if dbs.is_empty() {
            return;
        }
        let changes = &mut self.agenda.changes;
        changes.last = changes.last.saturating_add(1);
        for db in dbs {
            act(changes.of_dbs.entry(db).or_default(), changes.last);
        }
        changes.lap.begin(&self.book, usize::MAX);
    }

    /// Has the queues of the next place follow the changes. The caller calls it until
    /// [`Registry::is_behind`] is false.
    pub fn follow_next(&mut self) {
        if let Some((id, place)) = self.agenda.changes.lap.here(&self.book) {
            let keys = place.keys.clone();
            for key in keys.iter() {
                self.follow_now(key);
            }
            // Of many places of a key each ends by itself.
            let place = self.book.place(id);
            if place.is_some_and(|place| self.agenda.changes.end(place)) {
                drop(self.end(id));
                for key in keys.iter() {
                    self.mark(key.db, &key.name);
                }
            }
        }
        self.agenda.changes.lap.go_on(&self.book);
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
        let (change, last) = (self.agenda.changes.of(key.db), self.agenda.changes.last);
        let queue = self.book.queues.id_of(key);
        let Some(queue) = queue.and_then(|id| self.book.queues.get_mut(id)) else {
            return;
        };
        if std::mem::replace(&mut queue.seen_change, last) >= change.replaced {
            return;
        }
        queue.is_replaced = true;
        self.mark(key.db, &key.name);
        let ids = self.all_at(key);
        let is_over = |id: &PlaceId| {
            let place = self.book.place(*id);
            place.is_some_and(|place| self.agenda.changes.end(place))
        };
        let over: Vec<PlaceId> = ids.filter(is_over).take(MOST).collect();
        for id in over {
            // Nobody is to be told.
            drop(self.end(id));
        }
    }

    /// Has two databases change places. Waiters stay with the number of theirs. A marked key counts
    /// as marked in both, and all keys of both that are waited for as replaced.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        self.agenda.marks.swap_dbs(one, other);
        self.db_replaced(Some(one));
        self.db_replaced(Some(other));
    }
}

/// Hash slots.
impl<L, S: BuildHasher> Registry<L, S> {
    /// The hash slots of all waited keys.
    pub fn slots(&self) -> &WaitedSlots {
        &self.book.queues.slots
    }

    /// The same, to be changed.
    pub fn slots_mut(&mut self) -> &mut WaitedSlots {
        &mut self.book.queues.slots
    }

    /// The next question of the round.
    pub fn next_slot_question(&mut self) -> Option<SlotQuestion> {
        let queues = &mut self.book.queues;
        if let Some(key) = queues.slots.next_put_off() {
            self.agenda.marks.add(key);
        }
        queues.next_slot_question()
    }
}

/// The patrol.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Begins a patrol, unless one is on its way.
    pub fn begin_patrol(&mut self) {
        self.agenda.patrol.begin(&self.book);
    }

    /// Nothing waits. A way that goes on would pass those who come next.
    pub(super) fn begin_anew(&mut self) {
        self.agenda.patrol = Patrol::default();
    }

    /// Has the next patrol begin with all places, as if the one on its way were over.
    #[cfg(test)]
    pub(crate) fn end_patrol(&mut self) {
        self.agenda.patrol = Patrol::default();
    }

    /// Whether there are keys left to look at.
    pub fn is_on_patrol(&self) -> bool {
        !self.agenda.patrol.is_over() && !self.is_empty()
    }

    /// Any place. Whoever ends each goes through all once, like the patrol.
    pub(super) fn any_place(&mut self) -> Option<PlaceId> {
        while !self.is_empty() {
            let here = self.agenda.patrol.lap.here(&self.book).map(|(id, _)| id);
            self.agenda.patrol.lap.go_on(&self.book);
            if here.is_some() {
                return here;
            }
        }
        None
    }

    /// The next keys of the patrol: those for which the next place is the first. Those that were
    /// free when they were looked at last are marked: nobody tells of a lock that has come to them
    /// since, by RENAME or MOVE.
    pub fn next_of_patrol(&mut self) -> Vec<KeyRef> {
        let mut keys = Vec::new();
        if let Some((id, place)) = self.agenda.patrol.lap.here(&self.book) {
            let pairs = place.keys().zip(&place.ids);
            let first = pairs.filter(|(_, key)| self.book.first_at(**key) == Some(id));
            keys.extend(first.map(|(key, _)| key.clone()));
        }
        self.agenda.patrol.go_on(&self.book, keys.len());
        for key in &keys {
            let queue = self.book.queues.of(key);
            if queue.is_some_and(|queue| queue.is_replaced) {
                self.agenda.marks.add(key.clone());
            }
        }
        keys
    }
}
