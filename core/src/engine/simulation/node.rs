//! One server of the world: the machine, and a server in memory for it.

mod log;
mod memory;
mod replica;
mod task;
mod words;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::{at, Client, Keys, Place, Request, EVERY_DB};
use crate::command::macquire::Macquire;
use crate::command::Args;
use crate::engine::guard::{GuardEvent, Reason};
use crate::engine::host::Server;
use crate::engine::tick::{self, LOOK_AGAIN_US};
use crate::engine::{macquire, overdue, Machine, Note, Shared};
use crate::lock::{Ask, Deadline, Fate, Lock, Mode, Waiting};
use crate::wait::Delivery;

pub(super) use log::{counted, Log, Said};
pub(super) use memory::{Memory, Toy, Value};
pub(super) use replica::{Record, Snapshot};
use task::Task;
pub(super) use words::keys_of;
use words::Waits;

/// A server.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) machine: Machine<Toy>,
    shared: Shared<Toy>,
    pub(super) memory: Memory,
}

/// Events, seen from outside.
impl Node {
    pub(super) fn new(says_who_listens: bool) -> Self {
        let mut machine = Machine::default();
        machine.registry.slots_mut().keep();
        Self {
            machine,
            shared: Shared::default(),
            memory: Memory::new(says_who_listens),
        }
    }

    pub(super) fn values(&self) -> std::cell::Ref<'_, BTreeMap<Place, Value>> {
        self.memory.values.borrow()
    }

    pub(super) fn has_lock(&self, at: Place) -> bool {
        matches!(self.values().get(&at), Some(Value::Lock(..)))
    }

    /// Reads what callbacks have noted, as the next command would.
    pub(super) fn settle(&mut self) {
        drop(self.task(0, Vec::new()));
    }

    /// Whether a lock has left its key since the timer has run last.
    pub(super) fn has_lock_left(&self) -> bool {
        self.shared.inbox.has_lock_left()
    }

    fn task(&mut self, client: Client, words: Vec<Place>) -> Task<'_> {
        self.memory.client.set(client);
        Task::begin(&mut self.machine, &self.shared, &self.memory, words)
    }

    /// Leaves a note, which is read in this turn of the server's event loop.
    fn leave(&self, note: Note<Client>) {
        self.shared.inbox.leave(note);
        self.memory.is_armed.set(true);
    }

    /// Looks a key up as a server does for a write: a primary deletes what has expired.
    pub(super) fn look_up(&self, at: Place) -> bool {
        self.memory.look_up(&self.shared, at)
    }

    /// DEL.
    pub(super) fn delete(&self, at: Place) {
        self.memory.delete(&self.shared, at);
    }

    pub(super) fn overwrite(&mut self, at: Place) {
        self.note_arrival(at);
        self.delete(at);
        self.memory.values.borrow_mut().insert(at, Value::Other);
    }

    /// RENAME and MOVE, to a key that may have something.
    pub(super) fn rename(&mut self, from: Place, to: Place) {
        let value = self.memory.values.borrow_mut().remove(&from).unwrap();
        self.note_arrival(to);
        self.delete(to);
        // The server deletes the old key last, with the value under the new one already.
        let left = match &value {
            Value::Lock(lock, _) => Some(lock.clone()),
            Value::Other => None,
        };
        self.memory.values.borrow_mut().insert(to, value);
        if let Some(lock) = left {
            self.memory.lock_left(&self.shared, from, &lock);
        }
    }

    /// DUMP, and RESTORE REPLACE.
    pub(super) fn copy(&mut self, from: Place, to: Place, with_ttl: bool) {
        let value = self.values().get(&from).unwrap().clone();
        if matches!(value, Value::Lock(..)) {
            let db = to.db.into();
            let name = [to.name].into();
            self.leave(Note::Restored { db, name });
        } else {
            self.note_arrival(to);
        }
        self.delete(to);
        let value = match value {
            Value::Lock(lock, end) => Value::Lock(lock, end.filter(|_| with_ttl)),
            Value::Other => Value::Other,
        };
        self.memory.values.borrow_mut().insert(to, value);
    }

    /// RESTORE REPLACE, of a lock that these tokens have. Returns its fences.
    pub(super) fn restore(&mut self, to: Place, asks: &[Ask<'_>]) -> Vec<u64> {
        let now = self.memory.scene.get().now();
        let (mut lock, mut given) = (None, Vec::new());
        for ask in asks {
            let grant = self.shared.fences.with(|fences| {
                let nobody = Waiting::default();
                Lock::acquire(lock.as_ref(), *ask, now, nobody, fences).unwrap()
            });
            given.push(grant.hold.fence.get());
            let effect = grant.effect(ask.token);
            match &mut lock {
                None => lock = effect.apply_to_absent(),
                Some(lock) => assert_eq!(effect.apply_to(lock), Fate::Held),
            }
        }
        let lock = lock.unwrap();
        let db = to.db.into();
        let name = [to.name].into();
        self.leave(Note::Restored { db, name });
        self.delete(to);
        let end = lock.latest_deadline();
        let value = Value::Lock(lock, end);
        self.memory.values.borrow_mut().insert(to, value);
        given
    }

    pub(super) fn swap_dbs(&mut self, one: u8, other: u8) {
        let mut values = self.memory.values.borrow_mut();
        let swap = |db| match db {
            _ if db == one => other,
            _ if db == other => one,
            _ => db,
        };
        let swapped = std::mem::take(&mut *values).into_iter();
        *values = swapped
            .map(|(place, value)| (at(swap(place.db), place.name), value))
            .collect();
        let (one, other) = (one.into(), other.into());
        let bindings = &self.shared.bindings;
        bindings.change(|all| all.swap_dbs(one, other));
        self.leave(Note::Swapped(one, other));
    }

    pub(super) fn flush(&mut self, db: u8) {
        let mut values = self.memory.values.borrow_mut();
        values.retain(|at, _| db != EVERY_DB && at.db != db);
        let db = (db != EVERY_DB).then_some(db.into());
        self.shared.bindings.change(|all| all.empty_db(db));
        self.leave(Note::Emptied { db });
    }

    /// PEXPIRE, and PERSIST.
    pub(super) fn set_end(&mut self, at: Place, end_ms: Option<u64>) -> bool {
        self.patrol_is_due();
        match self.memory.values.borrow_mut().get_mut(&at) {
            Some(Value::Lock(_, end)) => {
                *end = end_ms.and_then(Deadline::from_millis);
                true
            }
            _ => false,
        }
    }

    /// Nobody tells of what comes to a key that has nothing: the patrol is to notice.
    fn note_arrival(&mut self, at: Place) {
        if !self.has_lock(at) {
            self.patrol_is_due();
        }
    }

    /// Has the patrol notice what nobody tells of, as if so much time had passed.
    fn patrol_is_due(&mut self) {
        self.machine.looked_us = 0;
        // One that writes held back in the middle may have passed the key already.
        self.machine.registry.end_look();
    }

    /// A client that waits is gone, and its connection with it.
    pub(super) fn kill_waiter(&self, client: Client, is_blocked: bool) {
        if is_blocked {
            self.leave(Note::Gone(client));
        }
        self.leave(Note::Disconnected(memory::connection_of(client)));
    }

    /// The connection of a client that does not wait is lost.
    pub(super) fn disconnect(&self, client: Client) {
        self.disconnected(memory::connection_of(client));
    }

    /// A connection is lost.
    pub(super) fn disconnected(&self, connection: NonZeroU64) {
        self.leave(Note::Disconnected(connection));
    }

    /// CLIENT UNBLOCK with an error.
    pub(super) fn unblock(&self, client: Client) {
        self.leave(Note::Gone(client));
    }

    /// The server becomes a replica, and may tell those who are blocked.
    pub(super) fn demoted(&mut self, blocked: &[Client]) {
        // The timer is not set: the server tells the blocked clients first.
        self.shared.inbox.leave(Note::Demoted);
        self.shared.bindings.change(|all| all.clear());
        for client in blocked {
            self.kill_waiter(*client, true);
        }
    }

    pub(super) fn promoted(&self) {
        self.begins(Reason::Promotion);
    }

    pub(super) fn started(&self) {
        self.begins(Reason::Restart);
    }

    fn begins(&self, reason: Reason) {
        self.shared.fences.begin_ahead(self.memory.ctx().now());
        let (at_us, settings) = (self.memory.ctx().boot_us(), self.memory.guard.get());
        let note = Note::Guard(GuardEvent::Began(reason, at_us, settings));
        self.shared.inbox.leave(note);
        self.leave(Note::SweepWanted);
    }

    /// What happens to its links matters to the guard.
    pub(super) fn note_link(&self, event: GuardEvent) {
        self.leave(Note::Guard(event));
    }

    pub(super) fn slots_changed(&self) {
        self.leave(Note::SlotsChanged);
    }

    /// A client is gone before it has heard of its grant, or has heard of it.
    pub(super) fn end_delivery(&self, client: Client, delivered: bool) {
        let is_it = |(other, _): &(Client, Delivery)| *other == client;
        let mut in_flight = self.memory.in_flight.borrow_mut();
        let at = in_flight.iter().position(is_it).unwrap();
        let (_, grant) = in_flight.remove(at);
        match delivered {
            true => self.shared.delivered(&grant),
            false if self.shared.lost(&grant) => self.memory.is_armed.set(true),
            false => {}
        }
    }
}

/// Commands.
impl Node {
    pub(super) fn command(&mut self, client: Client, at: Place, what: Request) {
        self.memory.db.set(at.db.into());
        self.task(client, vec![at]).run(what);
    }

    pub(super) fn take_all(&mut self, client: Client, keys: Keys, what: Request) {
        let Request::Take { limits, keep, .. } = what else {
            unreachable!()
        };
        let token = [what.token()];
        let (ttl, count) = (what.ttl().ms().to_string(), keys.iter().count().to_string());
        let names: Vec<[u8; 1]> = keys.iter().map(|(at, _)| [at.name]).collect();
        let mut words = vec![count.as_bytes()];
        words.extend(names.iter().map(|name| &name[..]));
        words.extend([&token[..], ttl.as_bytes(), b"MODES"]);
        words.extend(keys.iter().map(|(_, mode)| match mode {
            Mode::Shared => &b"SHARED"[..],
            _ => b"EXCLUSIVE",
        }));
        let linger_ms = self.memory.linger_ms.get();
        let waits = Waits::new(what.token(), limits, keep, linger_ms);
        words.extend(waits.words());
        let request = Macquire::parse(Args::new(words.into_iter())).unwrap();
        self.memory.db.set(keys.iter().next().unwrap().0.db.into());
        let places = keys.iter().map(|(at, _)| at).collect();
        let mut task = self.task(client, places);
        let result = macquire::run(&mut task, &request);
        task.end(result);
    }
}

/// The timer.
impl Node {
    /// Whether the timer goes off now.
    pub(super) fn is_due(&self) -> bool {
        let scene = self.memory.scene.get();
        let due = self.machine.due();
        let looked_us = scene.mono_us - self.machine.looked_us;
        let may_go = scene.is_primary && !scene.pauses_writes;
        let is_patrol_due = may_go && looked_us >= LOOK_AGAIN_US;
        if self.memory.is_armed.get() {
            return true;
        }
        match due.idle_us(scene.now(), scene.mono_us) {
            Some(0) => true,
            Some(_) => is_patrol_due,
            None => false,
        }
    }

    /// The timer goes off as long as it is set for now. The oracle looks at everything at once, so
    /// the sweep takes no rest. Returns how often it went off.
    pub(super) fn run_timer(&mut self) -> u64 {
        let mut rounds = 0;
        // It has looked so a tenth of a second ago at most.
        self.machine.refusal_asked_us = 0;
        overdue::note_refusal(&mut self.task(0, Vec::new()));
        self.machine.sweep.hurry();
        while self.is_due() {
            self.memory.is_armed.set(false);
            let mut task = self.task(0, Vec::new());
            let pause_us = tick::run(&mut task);
            drop(task);
            rounds += 1;
            if pause_us.is_some() {
                break;
            }
            self.machine.sweep.hurry();
            let (due, scene) = (self.machine.due(), self.memory.scene.get());
            assert!(
                rounds < 200,
                "the timer never comes to rest: {due:?} in {scene:?}"
            );
        }
        rounds
    }
}
