//! Keys that have changed outside a command, and those that are to be looked at.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::rc::Rc;

use super::{KeyQueue, Registry};
use crate::lock::Now;
use crate::wait::key_ref::{KeyRef, ANY_DB};
use crate::wait::queue::WaitQueue;
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

    /// Marks all keys of a database, or of all, that anybody waits for, as replaced.
    pub fn mark_db(&mut self, db: Option<i32>) -> bool {
        for (number, queues) in &mut self.queues {
            if db.is_none_or(|db| db == *number) {
                let here = queues.values_mut();
                here.for_each(|key| key.queue.lock_replaced());
                self.dirty.extend(queues.keys().map(|name| KeyRef {
                    db: *number,
                    name: Rc::clone(name),
                }));
            }
        }
        !self.dirty.is_empty()
    }

    /// Has two databases change places. Waiters stay with the number of theirs. A marked key counts as marked in both, and
    /// all keys of both that are waited for as replaced. Answers whether there is something to do.
    pub fn swap_dbs(&mut self, one: i32, other: i32) -> bool {
        let marks: Vec<KeyRef> = self.dirty.iter().cloned().collect();
        for mut key in marks {
            if key.swap_db(one, other) {
                self.dirty.insert(key);
            }
        }
        self.deliveries.swap_dbs(one, other);
        let first = self.mark_db(Some(one));
        self.mark_db(Some(other)) || first
    }

    /// Takes the mark of a key that is served. Whether it had one.
    pub fn unmark(&mut self, key: &KeyRef) -> bool {
        self.dirty.remove(key)
    }

    /// Takes the marks.
    pub fn take_dirty(&mut self) -> BTreeSet<KeyRef> {
        std::mem::take(&mut self.dirty)
    }

    /// Has a key looked at again once this node may serve it.
    pub fn put_off(&mut self, key: KeyRef) {
        self.put_off.insert(key);
    }

    /// Whether any key was put off.
    pub fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Marks the keys that were put off.
    pub fn mark_put_off(&mut self) {
        self.dirty.append(&mut self.put_off);
    }

    /// Some of the keys that are waited for, others each time until all have come. Those that were free when they were looked at last are
    /// marked: nobody tells of a lock that has come to them since, by RENAME or MOVE.
    pub fn next_of_patrol(&mut self, most: usize) -> Vec<KeyRef> {
        if self.patrol.is_empty() {
            self.patrol = self.waited_keys();
        }
        let rest = self.patrol.len().saturating_sub(most);
        let keys = self.patrol.split_off(rest);
        for key in &keys {
            let queue = self.queue(key.db, &key.name);
            if queue.is_some_and(WaitQueue::is_lock_replaced) {
                self.dirty.insert(key.clone());
            }
        }
        keys
    }

    /// Marks the keys that are to be looked at by now.
    pub fn mark_woken(&mut self, now: Now) {
        for key in self.schedule.woken(now) {
            self.set_wake(&key, None);
            self.dirty.insert(key);
        }
    }

    pub(super) fn key_queue(&mut self, key: &KeyRef) -> Option<&mut KeyQueue> {
        self.queues.get_mut(&key.db)?.get_mut(&key.name)
    }
}
