//! Ways through all that waits, a little in each turn of the timer: the pass over all places, and
//! hash slots.

use std::hash::{BuildHasher, Hash};

use super::agenda::MOST;
use super::Registry;
use crate::book::slots::{SlotQuestion, WaitedSlots};
use crate::rules::key_ref::KeyRef;
use crate::rules::place::{Place, PlaceId};
use crate::rules::Book;

/// Changes of whole databases.
impl<L, S: BuildHasher> Registry<L, S> {
    /// All keys of a database, or of all, may have lost their locks or got others.
    pub fn db_replaced(&mut self, db: Option<i32>) {
        self.change_db(db, false);
    }

    /// A database, or all, was emptied. The places at which nobody listens end with it.
    pub fn db_emptied(&mut self, db: Option<i32>) {
        self.change_db(db, true);
    }

    fn change_db(&mut self, db: Option<i32>, is_emptied: bool) {
        let number = self.book.last_change.saturating_add(1);
        let mut is_any = false;
        for queue in self.book.queues.iter_mut() {
            if db.is_none_or(|db| db == queue.key.db) {
                (queue.is_replaced, queue.is_behind, is_any) = (true, true, true);
                if is_emptied {
                    queue.emptied = number;
                }
            }
        }
        if is_any {
            self.book.last_change = number;
            self.agenda.pass.follow(&self.book);
        }
    }

    /// Has two databases change places. Waiters stay with the number of theirs. A marked key counts
    /// as marked in both, and all keys of both that are waited for as replaced.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        self.agenda.marks.swap_dbs(one, other);
        self.db_replaced(Some(one));
        self.db_replaced(Some(other));
    }

    /// Whether the queues of some keys may have to follow changes of their databases yet.
    pub fn is_behind(&self) -> bool {
        self.agenda.pass.follows() && !self.is_empty()
    }

    /// Whether nobody has listened at a place since before its database was emptied, so that it is
    /// over.
    pub(super) fn was_emptied(&self, place: &Place<L>) -> bool {
        let emptied = || {
            let queue = place.ids.first().and_then(|id| self.book.queues.get(*id));
            queue.map_or(0, |queue| queue.emptied)
        };
        self.is_behind() && place.is_absent_since_before(emptied())
    }
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
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
        let queue = self.book.queues.id_of(key);
        let Some(queue) = queue.and_then(|id| self.book.queues.get_mut(id)) else {
            return;
        };
        if !std::mem::take(&mut queue.is_behind) {
            return;
        }
        self.mark(key);
        let is_over = |id: &PlaceId| {
            self.book
                .place(*id)
                .is_some_and(|place| self.was_emptied(place))
        };
        let over = self.all_at(key).filter(is_over);
        let over: Vec<PlaceId> = over.take(MOST).collect();
        for id in over {
            // Nobody is to be told.
            drop(self.end(id));
        }
    }
}

/// The pass over all places.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Has the next keys looked at, unless they are.
    pub fn begin_look(&mut self) {
        self.agenda.pass.look(&self.book);
    }

    /// Whether the pass is on its way.
    pub fn is_passing(&self) -> bool {
        (self.agenda.pass.follows() || self.agenda.pass.looks()) && !self.is_empty()
    }

    /// Goes on by one place. Its queues follow changes, and it ends with its database. Answers the
    /// keys that are to be looked at: those for which it is the first place. Those that were free
    /// when they were looked at last are marked: nobody tells of a lock that has come to them
    /// since, by RENAME or MOVE.
    pub fn pass_on(&mut self) -> Vec<KeyRef> {
        let mut looks = Vec::new();
        if let Some((id, place)) = self.agenda.pass.here(&self.book) {
            let follows = self.agenda.pass.follows().then(|| place.keys.clone());
            if self.agenda.pass.looks() {
                let pairs = place.keys.iter().zip(&place.ids);
                let first = pairs.filter(|(_, key)| self.book.first_at(**key) == Some(id));
                looks.extend(first.map(|(key, _)| key.clone()));
            }
            if let Some(keys) = follows {
                for key in keys.iter() {
                    self.follow_now(key);
                }
                // Of many places of a key each ends by itself.
                let place = self.book.place(id);
                if place.is_some_and(|place| self.was_emptied(place)) {
                    drop(self.end(id));
                    for key in keys.iter() {
                        self.mark(key);
                    }
                }
            }
        }
        self.agenda.pass.go_on(&self.book, looks.len());
        for key in &looks {
            let queue = self.book.queues.of(key);
            if queue.is_some_and(|queue| queue.is_replaced) {
                self.agenda.marks.add(key.clone());
            }
        }
        looks
    }

    /// Any place. Whoever ends each goes through all once, like the pass.
    pub(super) fn any_place(&mut self) -> Option<PlaceId> {
        while !self.is_empty() {
            let here = self.agenda.pass.here(&self.book).map(|(id, _)| id);
            self.agenda.pass.go_on(&self.book, 0);
            if here.is_some() {
                return here;
            }
        }
        None
    }

    /// Has the next look begin with all places, as if the one on its way were over.
    #[cfg(test)]
    pub(crate) fn end_look(&mut self) {
        self.agenda.pass.end_look();
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
