//! Who waits for which key, and what has changed: everything about waiting that the server's memory holds.

// Long because: its tables must agree, so all methods that change them are in one file.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::delivery::{Deliveries, Delivery};
use super::key_ref::{KeyRef, ANY_DB};
use super::queue::{Next, Ticket, WaitQueue, Waiter};
use super::schedule::{Due, Schedule};
use crate::lock::{Effect, FenceClock, Hold, Lock, Mode, Now, Refusal, Waiting};

/// All waiters, and all that is to be done for them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Registry<L, S> {
    queues: HashMap<i32, HashMap<Rc<[u8]>, KeyQueue, S>, S>,
    /// Exactly the tickets in `queues`.
    entries: HashMap<Ticket, Entry<L>, S>,
    by_listener: HashMap<L, Ticket, S>,
    schedule: Schedule,
    /// Keys that have changed outside a command.
    dirty: BTreeSet<KeyRef>,
    /// Keys with a lock that must be looked at once this node of a cluster serves them.
    put_off: BTreeSet<KeyRef>,
    /// The waited keys that are still to be looked at in this turn of the patrol.
    patrol: Vec<KeyRef>,
    /// Grants that their listeners have not heard of yet.
    pub deliveries: Deliveries<S>,
    last_ticket: u64,
}

/// The queue of a key. There is none without a waiter.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct KeyQueue {
    queue: WaitQueue,
    /// The key's entry in the schedule.
    wakes_at_ms: Option<u64>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Entry<L> {
    key_ref: KeyRef,
    listener: L,
    since_us: u64,
    /// The entry in the schedule.
    times_out_at_us: Option<u64>,
    is_server_generated: bool,
}

/// A request that begins to wait.
#[derive(Debug)]
pub struct NewWaiter<L> {
    /// Whatever is answered when the wait ends. No two waiters have the same.
    pub listener: L,
    /// The request.
    pub waiter: Waiter,
    /// Why it was not granted at once.
    pub refusal: Refusal,
    /// Now, on the monotonic clock.
    pub since_us: u64,
    /// On the monotonic clock; `None` is never.
    pub times_out_at_us: Option<u64>,
    /// Whether the server has generated the token, which the reply then carries.
    pub is_server_generated: bool,
}

/// A waiter that has left its queue. Whoever took it out ends its wait.
#[derive(Debug)]
pub struct Removed<L> {
    /// The key that it waited for.
    pub key_ref: KeyRef,
    /// Whatever is to be answered.
    pub listener: L,
    /// The request.
    pub waiter: Waiter,
    /// Since when it has waited, on the monotonic clock.
    pub since_us: u64,
    /// Whether the server has generated the token.
    pub is_server_generated: bool,
}

/// What [`Registry::grant_next`] has done.
#[derive(Debug)]
pub enum Step<L> {
    /// A waiter has a hold. The caller carries out [`Granted::effect`].
    Granted(Granted<L>),
    /// A waiter can never be granted here.
    Refused(Removed<L>, Refusal),
}

/// A waiter that was granted.
#[derive(Debug)]
pub struct Granted<L> {
    /// The waiter.
    pub removed: Removed<L>,
    /// Its hold.
    pub hold: Hold,
    /// Whether its token had a hold before.
    pub had_it: bool,
    /// The delivery of the grant, which has begun.
    pub delivery: Delivery,
    /// When it was granted.
    pub at: Now,
}

impl<L> Granted<L> {
    /// The change of the lock.
    pub fn effect(&self) -> Effect<'_> {
        Effect::Hold {
            now_ms: self.at.ms(),
            mode: self.removed.waiter.mode,
            token: self.removed.waiter.token.as_token(),
            hold: self.hold,
        }
    }
}

impl<L, S: Default> Default for Registry<L, S> {
    fn default() -> Self {
        Self {
            queues: HashMap::default(),
            entries: HashMap::default(),
            by_listener: HashMap::default(),
            schedule: Schedule::default(),
            dirty: BTreeSet::new(),
            put_off: BTreeSet::new(),
            patrol: Vec::new(),
            deliveries: Deliveries::default(),
            last_ticket: 0,
        }
    }
}

/// Questions.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether nobody waits anywhere.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many wait, for all keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// For how many keys they wait.
    pub fn waited_key_count(&self) -> usize {
        self.queues.values().map(HashMap::len).sum()
    }

    /// The queue of a key, if anybody waits for it.
    pub fn queue(&self, db: i32, name: &[u8]) -> Option<&WaitQueue> {
        self.queues.get(&db)?.get(name).map(|key| &key.queue)
    }

    /// What a request on this key must know of those who wait.
    pub fn waiting(&self, key: &KeyRef) -> Waiting<'_> {
        self.queue(key.db, &key.name)
            .map_or_else(Waiting::default, WaitQueue::as_waiting)
    }

    /// The reference to a key that is waited for.
    pub fn key_ref(&self, db: i32, name: &[u8]) -> Option<KeyRef> {
        let (name, _) = self.queues.get(&db)?.get_key_value(name)?;
        let name = Rc::clone(name);
        Some(KeyRef { db, name })
    }

    /// All keys that are waited for.
    pub fn waited_keys(&self) -> Vec<KeyRef> {
        let keys = self.queues.iter().flat_map(|(db, queues)| {
            let names = queues.keys().map(Rc::clone);
            names.map(|name| KeyRef { db: *db, name })
        });
        keys.collect()
    }

    /// All waiters of a key.
    pub fn tickets(&self, key: &KeyRef) -> Vec<Ticket> {
        let queue = self.queue(key.db, &key.name);
        queue.map_or_else(Vec::new, |queue| queue.iter().map(|(t, _)| t).collect())
    }

    /// Whether there is something to do now: marked keys, or holds to take back.
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty() || self.deliveries.has_revoked()
    }

    /// Whether every table has as many entries as there are waiters, and none is left of those before.
    #[cfg(test)]
    pub(super) fn is_tight(&self) -> bool {
        let queues = self.queues.values().flat_map(HashMap::values);
        let queued: usize = queues.clone().map(|key| key.queue.len()).sum();
        queued == self.len()
            && self.by_listener.len() == self.len()
            && queues.clone().all(|key| !key.queue.is_empty())
            && self.schedule.wake_count() == queues.filter(|k| k.wakes_at_ms.is_some()).count()
    }

    /// When there is something to do.
    pub fn due(&self) -> Due {
        self.schedule.due(self.has_work())
    }
}

/// Waiters come and go.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Has a request wait.
    pub fn enter(&mut self, key_ref: KeyRef, new: NewWaiter<L>) {
        self.last_ticket = self.last_ticket.saturating_add(1);
        let ticket = Ticket(self.last_ticket);
        let queues = self.queues.entry(key_ref.db).or_default();
        let key = queues.entry(Rc::clone(&key_ref.name)).or_default();
        key.queue.push(ticket, new.waiter, new.refusal);
        if let Some(at_us) = new.times_out_at_us {
            self.schedule.add_timeout(at_us, ticket);
        }
        self.by_listener.insert(new.listener, ticket);
        let entry = Entry {
            key_ref,
            listener: new.listener,
            since_us: new.since_us,
            times_out_at_us: new.times_out_at_us,
            is_server_generated: new.is_server_generated,
        };
        self.entries.insert(ticket, entry);
    }

    /// Takes a waiter out. Whoever takes it out must end its wait.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Removed<L>> {
        let entry = self.entries.remove(&ticket)?;
        self.by_listener.remove(&entry.listener);
        if let Some(at_us) = entry.times_out_at_us {
            self.schedule.remove_timeout(at_us, ticket);
        }
        let key = self.key_queue(&entry.key_ref)?;
        let waiter = key.queue.remove(ticket)?;
        if key.queue.is_empty() {
            self.set_wake(&entry.key_ref, None);
            if let Some(queues) = self.queues.get_mut(&entry.key_ref.db) {
                queues.remove(&entry.key_ref.name);
            }
        }
        Some(Removed {
            key_ref: entry.key_ref,
            listener: entry.listener,
            waiter,
            since_us: entry.since_us,
            is_server_generated: entry.is_server_generated,
        })
    }

    /// Takes out the waiter of a listener; `None` when it does not wait any more.
    pub fn remove_listener(&mut self, listener: L) -> Option<Removed<L>> {
        let ticket = self.by_listener.get(&listener).copied()?;
        self.remove(ticket)
    }

    /// Takes the waiters whose time is over at `now_us` of the monotonic clock.
    pub fn take_timed_out(&mut self, now_us: u64) -> Vec<Removed<L>> {
        let tickets = self.schedule.timed_out(now_us).into_iter();
        tickets.filter_map(|ticket| self.remove(ticket)).collect()
    }

    /// Decides who is next on a key with this lock: takes that waiter out, granted or refused. `None` when nobody is.
    ///
    /// A lease counts from its grant, which `granted_at` makes of `now`.
    pub fn grant_next(
        &mut self,
        key: &KeyRef,
        lock: Option<&Lock>,
        now: Now,
        granted_at: impl FnOnce(Now) -> Now,
        fences: &mut FenceClock,
    ) -> Option<Step<L>> {
        let (ticket, waiter) = match self.key_queue(key)?.queue.next(lock, now)? {
            Next::Grant(ticket, waiter) => (ticket, waiter),
            Next::Deadlock(ticket) => {
                return Some(Step::Refused(self.remove(ticket)?, Refusal::Deadlock))
            }
        };
        let at = granted_at(now);
        let decided = Lock::acquire(lock, waiter.ask(), at, Waiting::default(), fences);
        let grant = match decided {
            Ok(grant) => grant,
            Err(refusal @ Refusal::FencesExhausted) => {
                return Some(Step::Refused(self.remove(ticket)?, refusal))
            }
            Err(_) => return None,
        };
        let before: Option<(Mode, Hold)> =
            lock.and_then(|lock| lock.hold_of(waiter.token.as_token(), at));
        let removed = self.remove(ticket)?;
        let delivery = self
            .deliveries
            .granted(&removed.key_ref, grant.fence, before);
        Some(Step::Granted(Granted {
            removed,
            hold: grant.hold,
            had_it: grant.had_it,
            delivery,
            at,
        }))
    }
}

/// Marks and wakes.
impl<L, S: BuildHasher> Registry<L, S> {
    /// Has a key that is waited for looked at by this time of the wall clock.
    pub fn set_wake(&mut self, key_ref: &KeyRef, at_ms: Option<u64>) {
        if let Some(key) = self.key_queue(key_ref) {
            let before = std::mem::replace(&mut key.wakes_at_ms, at_ms);
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

    /// Some of the keys that are waited for, others each time until all have come.
    pub fn next_of_patrol(&mut self, most: usize) -> Vec<KeyRef> {
        if self.patrol.is_empty() {
            self.patrol = self.waited_keys();
        }
        let rest = self.patrol.len().saturating_sub(most);
        self.patrol.split_off(rest)
    }

    /// Marks the keys that are to be looked at by now.
    pub fn mark_woken(&mut self, now: Now) {
        for key in self.schedule.woken(now) {
            self.set_wake(&key, None);
            self.dirty.insert(key);
        }
    }

    fn key_queue(&mut self, key: &KeyRef) -> Option<&mut KeyQueue> {
        self.queues.get_mut(&key.db)?.get_mut(&key.name)
    }
}
