//! The queues of all keys that are waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::rc::Rc;

use super::slots::{SlotQuestion, WaitedSlots};
use crate::lock::{Lock, Now};
use crate::wait::bytes;
use crate::wait::key_ref::{KeyId, KeyRef};
use crate::wait::place::{Place, PlaceId, Places};
use crate::wait::queue::{Next, WaitQueue};
use crate::wait::request::NEVER;
use crate::wait::slab::Slab;
use crate::wait::tree::SortedSet;

/// Each key that is waited for, with its queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues<S> {
    /// The newest one stands apart from the others. It is found without hashing, and mostly it is
    /// the only one.
    newest: Option<(KeyRef, KeyQueue)>,
    /// The name of a key that stood there. Mostly it is waited for again.
    spare_name: Option<Rc<[u8]>>,
    pub(super) others: Slab<(KeyRef, KeyQueue)>,
    /// The others by database, of which there are few, and by the hashes of their names. Different
    /// names may have the same hash.
    by_db: BTreeMap<i32, SortedSet<(u32, KeyId)>>,
    hasher: S,
    /// When the others are to be looked at, in wall-clock milliseconds. They have one entry each,
    /// unless that is never.
    wakes: SortedSet<(u64, KeyId)>,
    /// The slots of the same keys.
    pub(super) slots: WaitedSlots,
    /// Whether a place may upgrade. If one has, this stays until no place is left.
    pub(super) may_upgrade: bool,
    /// What the keys take.
    pub(super) bytes: usize,
}

/// The queue of a key.
#[derive(Clone, Debug)]
pub(super) struct KeyQueue {
    /// When the passing of time alone may make somebody next, in wall-clock milliseconds; [`NEVER`]
    /// is not at all.
    pub(super) wakes_at_ms: u64,
    pub(super) queue: WaitQueue,
}

impl<S: BuildHasher> Queues<S> {
    /// The queue of a key, with the name that all its places share.
    pub(super) fn named(&self, db: i32, name: &[u8]) -> Option<(&Rc<[u8]>, &KeyQueue)> {
        let (key, queue) = match &self.newest {
            Some(newest) if newest.0.is(db, name) => newest,
            _ => self.others.get(self.other(db, name)?)?,
        };
        Some((&key.name, queue))
    }

    fn is_newest(&self, db: i32, name: &[u8]) -> bool {
        let newest = self.newest.as_ref();
        newest.is_some_and(|(key, _)| key.is(db, name))
    }

    /// The number of a key that is not the newest.
    fn other(&self, db: i32, name: &[u8]) -> Option<KeyId> {
        let others = self.by_db.get(&db).filter(|others| !others.is_empty())?;
        let hash = self.hash_of(name);
        let same = others.from((hash, KeyId::MIN));
        let mut same = same.take_while(|(other, _)| *other == hash);
        let is_it = |id: KeyId| {
            self.others
                .get(id)
                .is_some_and(|(key, _)| *key.name == *name)
        };
        same.find(|(_, id)| is_it(*id)).map(|(_, id)| id)
    }

    fn hash_of(&self, name: &[u8]) -> u32 {
        // The low bits are as good as the others.
        (self.hasher.hash_one(name) & u64::from(u32::MAX)) as u32
    }

    pub(super) fn get(&self, db: i32, name: &[u8]) -> Option<&WaitQueue> {
        self.named(db, name).map(|(_, key)| &key.queue)
    }

    pub(super) fn of(&self, key: &KeyRef) -> Option<&WaitQueue> {
        self.get(key.db, &key.name)
    }

    pub(super) fn get_mut(&mut self, db: i32, name: &[u8]) -> Option<&mut WaitQueue> {
        if self.is_newest(db, name) {
            return self.newest.as_mut().map(|(_, key)| &mut key.queue);
        }
        let id = self.other(db, name)?;
        self.others.get_mut(id).map(|(_, key)| &mut key.queue)
    }

    pub(super) fn of_mut(&mut self, key: &KeyRef) -> Option<&mut WaitQueue> {
        self.get_mut(key.db, &key.name)
    }

    /// The reference to a key that is waited for, by the name that all its places share.
    pub(super) fn key_ref(&self, db: i32, name: &[u8]) -> Option<KeyRef> {
        let (name, _) = self.named(db, name)?;
        let name = Rc::clone(name);
        Some(KeyRef { db, name })
    }

    /// A reference to a key that nobody waits for.
    pub(super) fn new_key_ref(&self, db: i32, name: &[u8]) -> KeyRef {
        let spare = self.spare_name.as_ref().filter(|spare| ***spare == *name);
        let name = spare.map_or_else(|| name.into(), Rc::clone);
        KeyRef { db, name }
    }

    /// The same, or this reference if nobody waits for the key.
    pub(super) fn shared(&self, key: &KeyRef) -> KeyRef {
        let shared = self.key_ref(key.db, &key.name);
        shared.unwrap_or_else(|| key.clone())
    }

    /// The numbers of the databases that have, or have had, such keys.
    pub(super) fn dbs(&self) -> BTreeSet<i32> {
        let newest = self.newest.iter().map(|(key, _)| key.db);
        self.by_db.keys().copied().chain(newest).collect()
    }

    /// How many keys are waited for.
    pub(super) fn len(&self) -> usize {
        let newest = usize::from(self.newest.is_some());
        self.others.len().saturating_add(newest)
    }

    /// The queues of one database.
    pub(super) fn of_db(&self, db: i32) -> impl Iterator<Item = (&Rc<[u8]>, &WaitQueue)> {
        let newest = self.newest.iter().filter(move |(key, _)| key.db == db);
        let ids = self.by_db.get(&db).into_iter().flat_map(SortedSet::iter);
        let others = ids.filter_map(|(_, id)| self.others.get(id));
        newest
            .chain(others)
            .map(|(key, here)| (&key.name, &here.queue))
    }

    /// All queues.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Rc<[u8]>, &KeyQueue)> + Clone {
        let others = (0..self.others.slots()).filter_map(|n| self.others.nth(n));
        let all = self.newest.iter().chain(others.map(|(_, other)| other));
        all.map(|(key, here)| (key.db, &key.name, here))
    }

    /// What is to be done next at a key.
    pub(super) fn next<L>(
        &mut self,
        key: &KeyRef,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Next> {
        let queue = self.of_mut(key)?;
        let (next, has_upgrades) = (queue.next(places, lock, now), queue.has_upgrades());
        self.may_upgrade |= has_upgrades;
        next
    }
}

/// What comes in turn.
impl<S: BuildHasher> Queues<S> {
    /// The next question of the round through the hash slots.
    pub(super) fn next_slot_question(&mut self) -> Option<SlotQuestion> {
        let others = &self.others;
        let key_of = |id| others.get(id).map(|(key, _)| key.clone());
        let newest = self.newest.as_ref().map(|(key, _)| key);
        self.slots.next(newest, key_of)
    }

    /// Has a key that is waited for looked at by this time; [`NEVER`] is not at all.
    pub(super) fn set_wake(&mut self, key: &KeyRef, at_ms: u64) {
        match &mut self.newest {
            Some((newest, here)) if newest.is(key.db, &key.name) => here.wakes_at_ms = at_ms,
            _ => {
                if let Some(id) = self.other(key.db, &key.name) {
                    self.set_wake_of(id, at_ms);
                }
            }
        }
    }

    fn set_wake_of(&mut self, id: KeyId, at_ms: u64) {
        let Some((_, here)) = self.others.get_mut(id) else {
            return;
        };
        let before_ms = std::mem::replace(&mut here.wakes_at_ms, at_ms);
        if before_ms == at_ms {
            return;
        }
        if before_ms != NEVER {
            self.wakes.remove((before_ms, id));
        }
        if at_ms != NEVER {
            self.wakes.insert((at_ms, id));
        }
    }

    /// When the first key is to be looked at.
    pub(super) fn wakes_at_ms(&self) -> Option<u64> {
        let newest = self.newest.as_ref().map(|(_, here)| here.wakes_at_ms);
        let others = self.wakes.first().map(|(at_ms, _)| at_ms);
        let newest = newest.filter(|at_ms| *at_ms != NEVER);
        newest.into_iter().chain(others).min()
    }

    /// Takes the entry of a key that is to be looked at by now.
    pub(super) fn take_woken(&mut self, now: Now) -> Option<KeyRef> {
        if let Some((key, here)) = &mut self.newest {
            if here.wakes_at_ms <= now.ms() {
                here.wakes_at_ms = NEVER;
                return Some(key.clone());
            }
        }
        let first = self.wakes.first();
        let (_, id) = first.filter(|(at_ms, _)| *at_ms <= now.ms())?;
        self.set_wake_of(id, NEVER);
        self.others.get(id).map(|(key, _)| key.clone())
    }

    #[cfg(test)]
    pub(super) fn assert_tight(&self) {
        let wakes = self.iter().filter(|(.., key)| key.wakes_at_ms != NEVER);
        let newest = self.newest.iter();
        let newest = newest.filter(|(_, key)| key.wakes_at_ms != NEVER);
        assert_eq!(wakes.count(), self.wakes.len() + newest.count());
        self.slots.assert_tight(self.others.len());
        let indexes = self.by_db.values().map(SortedSet::len);
        assert_eq!(indexes.sum::<usize>(), self.others.len());
    }
}

impl<S: BuildHasher> Queues<S> {
    /// Puts a place into the queue of a key, which follows all changes up to `change` if it is new.
    pub(super) fn enter<L>(&mut self, key: KeyRef, id: PlaceId, places: &Places<L>, change: u32) {
        if let Some(queue) = self.of_mut(&key) {
            return queue.insert(id, places);
        }
        self.bytes = self.bytes.saturating_add(bytes::of_key(&key.name));
        let here = KeyQueue {
            wakes_at_ms: NEVER,
            queue: WaitQueue::of(id, change),
        };
        if let Some(newest) = self.newest.replace((key, here)) {
            self.put_with_others(newest);
        }
    }

    fn put_with_others(&mut self, (key, mut here): (KeyRef, KeyQueue)) {
        let (db, hash) = (key.db, self.hash_of(&key.name));
        let wakes_at_ms = std::mem::replace(&mut here.wakes_at_ms, NEVER);
        // There are at least as many places, so there is a number left.
        if let Some(id) = self.others.insert((key, here)) {
            self.by_db.entry(db).or_default().insert((hash, id));
            if let Some((key, _)) = self.others.get(id) {
                self.slots.add(&key.name, id);
            }
            self.set_wake_of(id, wakes_at_ms);
        }
    }

    /// Takes a place out of the queue of a key, which may end with it.
    pub(super) fn leave<L>(&mut self, key: &KeyRef, place: &Place<L>) {
        if !self.of_mut(key).is_some_and(|queue| queue.remove(place)) {
            return;
        }
        if self.is_newest(key.db, &key.name) {
            let newest = self.newest.take().map(|(key, _)| key.name);
            self.spare_name = newest.filter(|name| name.len() <= LONGEST_SPARE);
        } else if let Some(id) = self.other(key.db, &key.name) {
            self.set_wake_of(id, NEVER);
            self.others.remove(id);
            let entry = (self.hash_of(&key.name), id);
            if let Some(others) = self.by_db.get_mut(&key.db) {
                others.remove(entry);
            }
            self.slots.remove(&key.name, id);
        }
        self.bytes = self.bytes.saturating_sub(bytes::of_key(&key.name));
    }
}

/// The longest name that is kept while nobody waits for it.
const LONGEST_SPARE: usize = 128;
