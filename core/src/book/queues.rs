//! The keys that are waited for.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::rc::Rc;

use hashbrown::HashTable;
use slab::Slab;

use super::bytes;
use super::slots::{SlotQuestion, WaitedSlots};
use crate::book::counts::Counts;
use crate::lock::Now;
use crate::rules::key_ref::{KeyId, KeyRef};
use crate::rules::place::NEVER;

/// A key that is waited for. The places themselves are in [`super::order`].
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// With the name that all its places share.
    pub(crate) key: KeyRef,
    pub(crate) counts: Counts,
    /// When the passing of time alone may make somebody next, in wall-clock milliseconds; [`NEVER`]
    /// is not at all.
    pub(crate) wakes_at_ms: u64,
    /// Whether the lock was replaced by another one, whose holders may be waiting here.
    pub(crate) is_replaced: bool,
    /// Whether its database has changed as a whole since its key was looked at last.
    pub(crate) is_behind: bool,
    /// The number of the last change that has emptied its database.
    pub(crate) emptied: u32,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues<S> {
    all: Slab<Queue>,
    /// By the hashes of their names. These are kept, because a table that grows asks for all.
    by_name: HashTable<(u64, KeyId)>,
    /// The key that was found last. Mostly it is asked for again.
    found: Cell<KeyId>,
    hasher: S,
    /// When they are to be looked at, in wall-clock milliseconds. One entry for each key, unless
    /// that is never.
    wakes: BTreeSet<(u64, KeyId)>,
    pub(crate) slots: WaitedSlots,
    /// What the keys take.
    pub(crate) bytes: usize,
    /// The name of the last key that nobody waits for any more. Mostly it is waited for again.
    spare_name: Option<Rc<[u8]>>,
}

/// The longest name that is kept while nobody waits for it.
const LONGEST_SPARE: usize = 128;

/// Questions.
impl<S: BuildHasher> Queues<S> {
    /// The number of a key, if it is waited for.
    pub(crate) fn id(&self, db: i32, name: &[u8]) -> Option<KeyId> {
        if self.all.is_empty() {
            return None; // The usual case.
        }
        let is_it = |id: &KeyId| self.get(*id).is_some_and(|queue| queue.key.is(db, name));
        let last = self.found.get();
        if is_it(&last) {
            return Some(last);
        }
        let hash = self.hasher.hash_one((db, name));
        let (_, id) = *self.by_name.find(hash, |(_, id)| is_it(id))?;
        self.found.set(id);
        Some(id)
    }

    pub(crate) fn id_of(&self, key: &KeyRef) -> Option<KeyId> {
        self.id(key.db, &key.name)
    }

    pub(crate) fn get(&self, id: KeyId) -> Option<&Queue> {
        self.all.get(id.index())
    }

    pub(crate) fn get_mut(&mut self, id: KeyId) -> Option<&mut Queue> {
        self.all.get_mut(id.index())
    }

    pub(crate) fn of(&self, key: &KeyRef) -> Option<&Queue> {
        self.get(self.id_of(key)?)
    }

    /// A reference to a key, by the name that its places share.
    pub(crate) fn key_ref(&self, db: i32, name: &[u8]) -> Option<KeyRef> {
        self.get(self.id(db, name)?).map(|queue| queue.key.clone())
    }

    /// The same key by the name that all its places share, if it is waited for.
    pub(super) fn shared(&self, key: &KeyRef) -> KeyRef {
        self.of(key).map_or(key, |queue| &queue.key).clone()
    }

    /// A reference to a key that nobody waits for.
    pub(crate) fn new_key_ref(&self, db: i32, name: &[u8]) -> KeyRef {
        let spare = self.spare_name.as_ref().filter(|spare| ***spare == *name);
        let name = spare.map_or_else(|| name.into(), Rc::clone);
        KeyRef { db, name }
    }

    /// How many keys are waited for.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyId, &Queue)> {
        let all = self.all.iter();
        all.map(|(index, queue)| (KeyId::of(index), queue))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.all.iter_mut().map(|(_, queue)| queue)
    }

    /// The next question of the round through the hash slots.
    pub(crate) fn next_slot_question(&mut self) -> Option<SlotQuestion> {
        let all = &self.all;
        let key_of = |id: KeyId| all.get(id.index()).map(|queue| queue.key.clone());
        self.slots.next(key_of)
    }

    /// When the first key is to be looked at.
    pub(crate) fn wakes_at_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at_ms, _)| *at_ms)
    }

    #[cfg(test)]
    pub(super) fn assert_tight(&self) {
        let wakes = self.iter().filter(|(_, queue)| queue.wakes_at_ms != NEVER);
        assert_eq!(wakes.count(), self.wakes.len());
        self.slots.assert_tight(self.len());
        assert_eq!(self.by_name.len(), self.len());
        for (id, queue) in self.iter() {
            assert_eq!(self.id_of(&queue.key), Some(id));
            assert!(queue.counts.all() > 0);
        }
    }
}

/// Changes.
impl<S: BuildHasher> Queues<S> {
    /// The queue of a key to which a place comes.
    pub(super) fn enter(&mut self, key: &KeyRef) -> KeyId {
        let id = self.id_of(key);
        id.unwrap_or_else(|| self.insert(key))
    }

    fn insert(&mut self, key: &KeyRef) -> KeyId {
        self.bytes = self.bytes.saturating_add(bytes::of_key(&key.name));
        let id = KeyId::of(self.all.insert(Queue {
            key: key.clone(),
            counts: Counts::default(),
            wakes_at_ms: NEVER,
            is_replaced: false,
            is_behind: false,
            emptied: 0,
        }));
        let hash = self.hasher.hash_one((key.db, &*key.name));
        self.by_name
            .insert_unique(hash, (hash, id), |(hash, _)| *hash);
        self.found.set(id);
        self.slots.add(&key.name, id);
        id
    }

    /// A place has left a key, and is not counted any more.
    pub(super) fn leave(&mut self, id: KeyId) {
        let Some(queue) = self.all.get_mut(id.index()) else {
            return debug_assert!(false, "a place without a queue");
        };
        if queue.counts.all() > 0 {
            return;
        }
        self.set_wake(id, NEVER);
        let key = self.all.remove(id.index()).key;
        let hash = self.hasher.hash_one((key.db, &*key.name));
        if let Ok(entry) = self.by_name.find_entry(hash, |(_, other)| *other == id) {
            entry.remove();
        }
        self.slots.remove(&key.name, id);
        self.bytes = self.bytes.saturating_sub(bytes::of_key(&key.name));
        self.spare_name = Some(key.name).filter(|name| name.len() <= LONGEST_SPARE);
        if self.all.is_empty() {
            self.all.clear(); // The numbers begin anew.
            if self.all.capacity() > SPARE {
                // Much memory of those before goes back.
                self.all.shrink_to_fit();
                self.by_name.shrink_to(SPARE, |(hash, _)| *hash);
            }
        }
    }

    /// Has a key looked at by this time; [`NEVER`] is not at all.
    pub(crate) fn set_wake(&mut self, id: KeyId, at_ms: u64) {
        let Some(queue) = self.all.get_mut(id.index()) else {
            return;
        };
        let before_ms = std::mem::replace(&mut queue.wakes_at_ms, at_ms);
        if before_ms == at_ms {
            return;
        }
        if before_ms != NEVER {
            self.wakes.remove(&(before_ms, id));
        }
        if at_ms != NEVER {
            self.wakes.insert((at_ms, id));
        }
    }

    /// Takes the wake of a key that is to be looked at by now.
    pub(crate) fn take_woken(&mut self, now: Now) -> Option<KeyId> {
        let first = self.wakes.first();
        let (_, id) = first.filter(|(at_ms, _)| *at_ms <= now.ms())?;
        let id = *id;
        self.set_wake(id, NEVER);
        Some(id)
    }
}

/// How many entries an empty table has room for.
pub(super) const SPARE: usize = 16;
