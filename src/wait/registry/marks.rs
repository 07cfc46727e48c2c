//! Keys that have changed outside a command, and those that are to be looked at.

use std::hash::{BuildHasher, Hash};

use super::{KeyQueue, Registry};
use crate::lock::{Effect, Now};
use crate::wait::key_ref::{KeyRef, ANY_DB};
use crate::wait::request::NEVER;

/// Marks and wakes.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Has a key that is waited for looked at by this time of the wall clock.
    pub fn set_wake(&mut self, key_ref: &KeyRef, at_ms: Option<u64>) {
        if let Some(key) = self.key_queue(key_ref) {
            let before = std::mem::replace(&mut key.wakes_at_ms, at_ms.unwrap_or(NEVER));
            let before = (before != NEVER).then_some(before);
            self.schedule.set_wake(key_ref, before, at_ms);
        }
    }

    /// Marks a key as changed, if anybody waits for it. Answers whether somebody does.
    pub fn mark(&mut self, db: i32, name: &[u8]) -> bool {
        let key = self.key_ref(db, name);
        key.map(|key| self.dirty.insert(key)).is_some()
    }

    /// The same where the key has lost its lock, and may get another one in its place.
    pub fn mark_replaced(&mut self, db: i32, name: &[u8]) -> bool {
        let queues = self.queues.get_mut(&db);
        if let Some(key) = queues.and_then(|queues| queues.get_mut(name)) {
            key.queue.lock_replaced();
        }
        self.mark(db, name)
    }

    /// Notes that the lock of a key that was just served has changed by a grant only, to a token
    /// that does not wait for it.
    pub fn lock_granted(&mut self, key: &KeyRef) {
        if let Some(queue) = self.queue_mut(key) {
            queue.lock_granted();
        }
    }

    /// Whether [`Registry::lock_changed`] has to be told of changes.
    pub const fn may_upgrade(&self) -> bool {
        self.may_upgrade
    }

    /// Follows an effect that is carried out on a lock: a token that waits to convert its hold may
    /// have lost it, or have it for less long.
    pub fn lock_changed(&mut self, db: i32, name: &[u8], effect: &Effect<'_>) {
        let queues = self.queues.get_mut(&db);
        if let Some(key) = queues.and_then(|queues| queues.get_mut(name)) {
            key.queue.lock_changed(effect, &self.places);
        }
    }

    /// Marks a key as changed, whether anybody waits for it or not. `None` is any database.
    pub fn mark_anyway(&mut self, db: Option<i32>, name: &[u8]) {
        self.dirty.insert(KeyRef::new(db.unwrap_or(ANY_DB), name));
    }

    /// Marks a key as replaced in whatever database it is waited for.
    pub fn mark_in_all_dbs(&mut self, name: &[u8]) -> bool {
        let dbs: Vec<i32> = self.queues.keys().copied().collect();
        let mut any = false;
        for db in dbs {
            any |= self.mark_replaced(db, name);
        }
        any
    }

    /// Whether somebody may be next on a key that was served before: something has happened to it
    /// since, or the time has come. Each change of its places either serves or marks it.
    pub fn may_be_due(&self, key: &KeyRef, now: Now) -> bool {
        if self.is_behind() || self.places_for_several > 0 || self.is_marked(key) {
            return true;
        }
        let queues = self.queues.get(&key.db);
        queues
            .and_then(|queues| queues.get(&key.name))
            .is_some_and(|here| {
                here.wakes_at_ms <= now.ms()
                    || here.queue.is_lock_replaced()
                    || here.queue.has_upgrades()
            })
    }

    fn is_marked(&self, key: &KeyRef) -> bool {
        self.dirty.contains(key) || self.dirty_first.contains(key)
    }

    /// Takes the mark of a key that is served. Whether it had one.
    pub fn unmark(&mut self, key: &KeyRef) -> bool {
        let was_first = self.dirty_first.remove(key);
        self.dirty.remove(key) || was_first
    }

    /// Begins a turn of the timer. Keys that are marked from now on come in a later turn.
    pub fn begin_turn(&mut self) {
        if self.dirty_first.is_empty() {
            std::mem::swap(&mut self.dirty, &mut self.dirty_first);
        }
    }

    /// Takes the mark of the next key that the timer is to look at in this turn.
    pub fn next_marked(&mut self) -> Option<KeyRef> {
        let key = self.dirty_first.pop_first()?;
        self.dirty.remove(&key);
        Some(key)
    }

    /// Takes all marks.
    pub fn clear_marks(&mut self) {
        self.dirty.clear();
        self.dirty_first.clear();
    }

    /// Marks the next key that is to be looked at by now. False if there is none.
    pub fn mark_woken(&mut self, now: Now) -> bool {
        let Some(key) = self.schedule.woken(now) else {
            return false;
        };
        self.set_wake(&key, None);
        self.dirty.insert(key);
        true
    }

    pub(super) fn key_queue(&mut self, key: &KeyRef) -> Option<&mut KeyQueue> {
        self.queues.get_mut(&key.db)?.get_mut(&key.name)
    }
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Has two databases change places. Waiters stay with the number of theirs. A marked key counts
    /// as marked in both, and all keys of both that are waited for as replaced.
    pub fn swap_dbs(&mut self, one: i32, other: i32) {
        let marks = self.dirty.iter().chain(&self.dirty_first);
        let swapped = marks.filter_map(|key| {
            let mut key = key.clone();
            key.swap_db(one, other).then_some(key)
        });
        let swapped: Vec<KeyRef> = swapped.collect();
        self.dirty.extend(swapped);
        self.deliveries.swap_dbs(one, other);
        self.db_replaced(Some(one));
        self.db_replaced(Some(other));
    }
}
