//! The queues of all keys that are waited for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::rc::Rc;

use super::slots::WaitedSlots;
use crate::lock::{Lock, Now};
use crate::wait::bytes;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId, Places};
use crate::wait::queue::{Next, WaitQueue};
use crate::wait::request::NEVER;

/// Each key that is waited for, with its queue.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Queues<S> {
    /// The newest one stands apart from the others. It is found without hashing, and mostly it is
    /// the only one.
    newest: Option<(KeyRef, KeyQueue)>,
    /// The name of a key that stood there. Mostly it is waited for again.
    spare_name: Option<Rc<[u8]>>,
    /// The others by database, of which there are few.
    by_db: BTreeMap<i32, HashMap<Rc<[u8]>, KeyQueue, S>>,
    /// Exactly the keys of all queues. `None` outside a cluster.
    pub(super) slots: Option<WaitedSlots>,
    /// Whether a place may upgrade. If one has, this stays until no place is left.
    pub(super) may_upgrade: bool,
    /// What the keys take.
    pub(super) bytes: usize,
}

/// The queue of a key.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct KeyQueue {
    /// The key's entry in the schedule; [`NEVER`] is none.
    pub(super) wakes_at_ms: u64,
    pub(super) queue: WaitQueue,
}

impl<S: BuildHasher> Queues<S> {
    /// The queue of a key, with the name that all its places share.
    pub(super) fn named(&self, db: i32, name: &[u8]) -> Option<(&Rc<[u8]>, &KeyQueue)> {
        match &self.newest {
            Some((key, queue)) if key.is(db, name) => Some((&key.name, queue)),
            _ => self.by_db.get(&db)?.get_key_value(name),
        }
    }

    fn is_newest(&self, db: i32, name: &[u8]) -> bool {
        let newest = self.newest.as_ref();
        newest.is_some_and(|(key, _)| key.is(db, name))
    }

    pub(super) fn get(&self, db: i32, name: &[u8]) -> Option<&WaitQueue> {
        self.named(db, name).map(|(_, key)| &key.queue)
    }

    pub(super) fn of(&self, key: &KeyRef) -> Option<&WaitQueue> {
        self.get(key.db, &key.name)
    }

    pub(super) fn get_mut(&mut self, db: i32, name: &[u8]) -> Option<&mut KeyQueue> {
        if self.is_newest(db, name) {
            return self.newest.as_mut().map(|(_, key)| key);
        }
        self.by_db.get_mut(&db)?.get_mut(name)
    }

    pub(super) fn of_mut(&mut self, key: &KeyRef) -> Option<&mut WaitQueue> {
        let key = self.get_mut(key.db, &key.name)?;
        Some(&mut key.queue)
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
        let others: usize = self.by_db.values().map(HashMap::len).sum();
        others.saturating_add(usize::from(self.newest.is_some()))
    }

    /// The queues of one database.
    pub(super) fn of_db(&self, db: i32) -> impl Iterator<Item = (&Rc<[u8]>, &WaitQueue)> {
        let newest = self.newest.iter().filter(move |(key, _)| key.db == db);
        let newest = newest.map(|(key, queue)| (&key.name, queue));
        let keys = self.by_db.get(&db).into_iter().flatten();
        newest.chain(keys).map(|(name, key)| (name, &key.queue))
    }

    /// All queues.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Rc<[u8]>, &KeyQueue)> + Clone {
        let newest = self.newest.iter();
        let newest = newest.map(|(key, queue)| (key.db, &key.name, queue));
        let dbs = self.by_db.iter();
        newest.chain(dbs.flat_map(|(db, queues)| queues.iter().map(|(name, key)| (*db, name, key))))
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

impl<S: BuildHasher + Default> Queues<S> {
    /// Puts a place into the queue of a key, which follows all changes up to `change` if it is new.
    pub(super) fn enter<L>(&mut self, key: KeyRef, id: PlaceId, places: &Places<L>, change: u32) {
        if let Some(queue) = self.of_mut(&key) {
            return queue.insert(id, places);
        }
        self.bytes = self.bytes.saturating_add(bytes::of_key(&key.name));
        if let Some(slots) = &mut self.slots {
            slots.add(&key);
        }
        let here = KeyQueue {
            wakes_at_ms: NEVER,
            queue: WaitQueue::of(id, change),
        };
        if let Some((key, queue)) = self.newest.replace((key, here)) {
            let others = self.by_db.entry(key.db).or_default();
            others.insert(key.name, queue);
        }
    }

    /// Takes a place out of the queue of a key. Returns the queue if it has ended with it.
    pub(super) fn leave<L>(&mut self, key: &KeyRef, place: &Place<L>) -> Option<KeyQueue> {
        if !self.of_mut(key)?.remove(place) {
            return None;
        }
        let ended = if self.is_newest(key.db, &key.name) {
            let (newest, ended) = self.newest.take()?;
            self.spare_name = Some(newest.name).filter(|name| name.len() <= LONGEST_SPARE);
            Some(ended)
        } else {
            let queues = self.by_db.get_mut(&key.db)?;
            let ended = queues.remove(&key.name);
            if queues.is_empty() {
                queues.shrink_to(SPARE_KEYS);
            }
            ended
        };
        self.bytes = self.bytes.saturating_sub(bytes::of_key(&key.name));
        if let Some(slots) = &mut self.slots {
            slots.remove(key);
        }
        ended
    }
}

/// The longest name that is kept while nobody waits for it.
const LONGEST_SPARE: usize = 128;

/// How many keys a database has room for while nobody waits for any.
const SPARE_KEYS: usize = 1_024;
