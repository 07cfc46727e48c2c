//! Ways through all that waits, a little in each turn of the timer: changes of whole databases,
//! hash slots, the patrol.

use std::hash::{BuildHasher, Hash};

use super::changes::Change;
use super::patrol;
use super::slots::{Round, SlotQuestion, Slots};
use super::Registry;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::PlaceId;
use crate::wait::queue::WaitQueue;

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

    fn change_db(&mut self, db: Option<i32>, act: impl Fn(&mut Change, u32)) {
        let is_it = |number: &i32| db.is_none_or(|db| db == *number);
        let waited = self.queues.iter().filter(|(_, queues)| !queues.is_empty());
        let dbs: Vec<i32> = waited.map(|(number, _)| *number).filter(is_it).collect();
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
        let Some(queue) = self.queue_mut(key) else {
            return;
        };
        if queue.follow(last) >= change.replaced {
            return;
        }
        queue.lock_replaced();
        self.mark(key.db, &key.name);
        let queue = self.queue(key.db, &key.name);
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
}

/// Hash slots.
impl<L, S> Registry<L, S> {
    /// Has the registry know the hash slots of its keys, before anybody waits: the server is a node
    /// of a cluster.
    pub fn keep_slots(&mut self) {
        self.slots.get_or_insert_default();
    }

    /// Begins a round through the slots of all waited keys, from the first one. Keys that were put
    /// off are looked at again.
    pub fn begin_slots(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.round = Round::SlotFrom(0);
            slots.put_off.append(&mut self.put_off);
        }
    }

    /// Whether the round is not over.
    pub fn is_asking_for_slots(&self) -> bool {
        let is_over =
            |slots: &Slots| matches!(slots.round, Round::Nothing) && slots.put_off.is_empty();
        !self.slots.as_ref().is_none_or(is_over)
    }

    /// The next question of the round.
    pub fn next_slot_question(&mut self) -> Option<SlotQuestion> {
        let slots = self.slots.as_mut()?;
        if let Some(key) = slots.put_off.pop_first() {
            self.dirty.insert(key);
        }
        slots.next()
    }

    /// This node does not serve all keys of the slot that was asked for, so each of them is asked
    /// for.
    pub fn slot_is_refused(&mut self, slot: u16) {
        if let Some(slots) = &mut self.slots {
            slots.round = Round::KeysOf(slot, None);
        }
    }

    /// Has a key looked at again once this node may serve it.
    pub fn put_off(&mut self, key: KeyRef) {
        self.put_off.insert(key);
    }

    /// Whether any key was put off.
    pub fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }
}

/// The patrol.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Begins a patrol, unless one is on its way.
    pub fn begin_patrol(&mut self) {
        if !self.is_on_patrol() || self.patrol.lap.is_of_the_past(&self.places) {
            self.patrol.lap.begin(&self.places, patrol::PLACES);
            self.patrol.keys_left = patrol::KEYS;
        }
    }

    /// Whether there are keys left to look at.
    pub fn is_on_patrol(&self) -> bool {
        !self.patrol.lap.is_over() && self.patrol.keys_left > 0 && !self.is_empty()
    }

    /// Any place. Whoever ends each goes through all once, like the patrol.
    pub(super) fn any_place(&mut self) -> Option<PlaceId> {
        while !self.is_empty() {
            let here = self.patrol.lap.here(&self.places).map(|(id, _)| id);
            self.patrol.lap.go_on(&self.places);
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
        let is_first = |id: PlaceId, key: &KeyRef| {
            let queue = self.queue(key.db, &key.name);
            queue.is_some_and(|queue| queue.is_first(id))
        };
        let mut keys = Vec::new();
        if let Some((id, place)) = self.patrol.lap.here(&self.places) {
            keys.extend(place.keys().filter(|key| is_first(id, key)).cloned());
        }
        self.patrol.lap.go_on(&self.places);
        self.patrol.keys_left = self.patrol.keys_left.saturating_sub(keys.len());
        for key in &keys {
            let queue = self.queue(key.db, &key.name);
            if queue.is_some_and(WaitQueue::is_lock_replaced) {
                self.dirty.insert(key.clone());
            }
        }
        keys
    }
}
