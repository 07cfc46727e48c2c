//! Waiting as a whole against a naive oracle: all short histories, and long random ones.
//!
//! A world has databases with locks, a role, slots that are served or not, a wall clock, a clock
//! that nobody can set, and clients that wait. Two sides play it. The real one is the machine on a
//! server in memory ([`node`]): the same code as in a server, from the words of a command to the
//! turn of its timer. The other one is the [`oracle`]: flat lists, without marks or a schedule,
//! which looks at everything each time.
//!
//! After each step both sides have the same holds and waiters, and have answered the same clients.

// Long because: the world and all its steps belong together.

mod check;
mod cycles;
mod drivers;
mod enumerate;
mod lingering;
mod naive;
mod nested;
mod node;
mod once;
mod one_key;
mod oracle;
mod properties;
mod request;
mod scenes;
mod servers;
mod several_drivers;

use std::collections::BTreeMap;
use std::fmt;

use super::tick::LOOK_AGAIN_US;
use crate::lock::{Mode, Now, Token};
use crate::wait::Limits as Room;
use node::{Node, Value};
use oracle::{NaiveResult, Oracle};
use request::{Limits, Request};

type Client = u32;

const DBS: u8 = 2;
const NAMES: u8 = 3;
const EVERY_DB: u8 = DBS;

/// A key in a database. Each name has a slot of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    db: u8,
    name: u8,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.db, self.name)
    }
}

const fn at(db: u8, name: u8) -> Place {
    Place { db, name }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Ask(Place, Request),
    /// LOCK.ONCE for this result, or LOCK.EXEC that writes it.
    Once(Place, Request, u8),
    /// A result of the key's database becomes this, and a command serves the key.
    Result(Place, u8, Option<NaiveResult>),
    /// A result ends, and nobody is told.
    NoResult(Place, u8),
    /// A request for several keys.
    AskAll(Keys, Request),
    /// A waiting client is gone: the one at this place among all that wait.
    KillWaiter(usize),
    /// The same: the one at this place in the queue of a key.
    KillAt(Place, usize),
    /// A client that was granted is gone before it hears of it, or hears of it.
    Lose(usize),
    Deliver(usize),
    /// A client to which holds are bound loses its connection.
    Disconnect(usize),
    /// Both clocks go on, in milliseconds.
    Tick(u64),
    /// The wall clock is set.
    SetClock(i64),
    Timer,
    Delete(Place),
    Overwrite(Place),
    Rename(Place, Place),
    Copy(Place, Place, bool),
    /// A lock with so much ttl comes to a key, as by RESTORE REPLACE. Two tokens share it, or one
    /// token has it alone.
    Restore(Place, [u8; 2], u64),
    SwapDbs(u8, u8),
    Flush(u8),
    Persist(Place),
    Expire(Place, u64),
    /// The server deletes all keys that have expired.
    ExpireCycle,
    /// The server becomes a replica. Whether it disconnects those who wait.
    Demote(bool),
    Promote,
    /// A slot goes to another node. Whether its keys are deleted.
    SlotGoes(u8, bool),
    SlotComes(u8),
    RefuseWrites(bool),
    /// CLIENT PAUSE WRITE begins or ends.
    PauseWrites(bool),
    /// Whether anybody receives what is published from now on.
    Subscribe(bool),
}

/// Up to three keys, each with its mode.
#[derive(Clone, Copy, Debug)]
struct Keys([Option<(Place, Mode)>; 3]);

impl Keys {
    fn iter(&self) -> impl Iterator<Item = (Place, Mode)> {
        self.0.into_iter().flatten()
    }
}

/// What a client gets, or is noted of it. A grant has a fence, or the oracle's number of the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Waits,
    Granted(u64),
    /// A result.
    Value(u8),
    /// An early result, and the fence of the hold.
    Early(u64),
    Null,
    Done(bool),
    Deadlock,
    /// The token holds some of several keys, or waits for some of them otherwise.
    Partial,
    TryAgain,
    WrongType,
    Cancelled,
    /// Another error.
    Refused,
    Count(u64),
}

/// What both sides know of the server.
#[derive(Clone, Copy, Debug)]
struct Scene {
    now_ms: u64,
    mono_us: u64,
    is_primary: bool,
    served: [bool; NAMES as usize],
    refuses_writes: bool,
    pauses_writes: bool,
    has_subscribers: bool,
    detects_deadlocks: bool,
    /// How many may wait.
    room: Room,
}

impl Scene {
    fn new() -> Self {
        Self {
            now_ms: 1_000,
            // The patrol has gone long ago, where it is to go now.
            mono_us: LOOK_AGAIN_US,
            is_primary: true,
            served: [true; NAMES as usize],
            refuses_writes: false,
            pauses_writes: false,
            has_subscribers: true,
            detects_deadlocks: false,
            room: Room {
                per_key: usize::MAX,
                per_server: usize::MAX,
                absent_per_key: usize::MAX,
                per_user: usize::MAX,
                bytes: usize::MAX,
            },
        }
    }

    fn now(&self) -> Now {
        Now::from_millis(self.now_ms)
    }

    /// Both clocks go on.
    fn go_on(&mut self, ms: u64) {
        self.now_ms += ms;
        self.mono_us += ms * 1_000;
    }

    /// Whether the timer may change locks.
    fn may_write(&self) -> bool {
        !self.refuses_writes && !self.pauses_writes
    }

    fn serves(&self, at: Place) -> bool {
        // A scenario names other keys, too.
        let slot = self.served.get(usize::from(at.name));
        slot.copied().unwrap_or(true)
    }

    /// All keys that there can be.
    fn places(&self) -> impl Iterator<Item = Place> {
        (0..DBS).flat_map(|db| (0..NAMES).map(move |name| at(db, name)))
    }
}

#[derive(Clone)]
struct World {
    scene: Scene,
    real: Node,
    oracle: Oracle,
    last_client: Client,
    /// The fence of each of the oracle's holds.
    fences: BTreeMap<u64, u64>,
    last_fence: u64,
    /// Keys that have come without a ttl and are to have one after the timer.
    without_ttl: Vec<Place>,
    /// Whether the timer runs after each step, and all replies get to their clients.
    settles: bool,
}

impl World {
    fn new(says_who_listens: bool) -> Self {
        Self {
            scene: Scene::new(),
            real: Node::new(says_who_listens),
            oracle: Oracle::default(),
            last_client: 0,
            fences: BTreeMap::new(),
            last_fence: 0,
            without_ttl: Vec::new(),
            settles: false,
        }
    }

    fn step(&mut self, op: Op) {
        self.real.memory.events.borrow_mut().clear();
        self.oracle.events.clear();
        self.play(op);
        if self.settles {
            self.play(Op::Timer);
            self.deliver_all();
        }
        self.check_events(op);
        self.check_state(op);
    }

    fn play(&mut self, op: Op) {
        self.real.memory.scene.set(self.scene);
        match op {
            Op::Ask(at, request) => self.command(at, request),
            Op::Once(..) | Op::Result(..) | Op::NoResult(..) => self.play_once(op),
            Op::AskAll(keys, request) => self.command_for_all(keys, request),
            Op::KillWaiter(n) => self.kill_waiter(nth(&self.waiting(true), n)),
            Op::KillAt(at, n) => self.kill_waiter(nth(&self.oracle.listeners(at), n)),
            Op::Lose(n) => self.end_delivery(n, false),
            Op::Deliver(n) => self.end_delivery(n, true),
            Op::Disconnect(n) => {
                if let Some(client) = nth(&self.bound_clients(), n) {
                    self.real.disconnect(client);
                    self.oracle.disconnect(client, self.scene.now_ms);
                }
            }
            Op::Tick(ms) => self.scene.go_on(ms),
            Op::SetClock(ms) => self.set_clock(ms),
            Op::Timer => self.timer(),
            Op::Demote(disconnects) => {
                self.scene.is_primary = false;
                let mut blocked = self.waiting(false);
                blocked.retain(|_| disconnects);
                self.real.demoted(&blocked);
                self.oracle.was_demoted = true;
                self.oracle.unbind_all();
                for client in blocked {
                    self.oracle.kill_waiter(client, &self.scene);
                }
            }
            Op::Promote if !self.scene.is_primary => {
                self.scene.is_primary = true;
                self.real.memory.scene.set(self.scene);
                self.real.promoted();
            }
            Op::Promote => {}
            Op::SlotGoes(name, deletes) => {
                self.scene.served[usize::from(name)] = false;
                self.real.slots_changed();
                for db in (0..DBS).filter(|_| deletes) {
                    self.real.delete(at(db, name));
                    self.oracle.clear(at(db, name));
                }
            }
            Op::SlotComes(name) => {
                self.scene.served[usize::from(name)] = true;
                self.real.slots_changed();
            }
            Op::RefuseWrites(refuses) => self.scene.refuses_writes = refuses,
            Op::PauseWrites(pauses) => self.scene.pauses_writes = pauses,
            Op::Subscribe(subscribes) => self.scene.has_subscribers = subscribes,
            _ => self.keyspace(op),
        }
        self.real.memory.scene.set(self.scene);
        self.real.settle();
    }

    fn kill_waiter(&mut self, client: Option<Client>) {
        if let Some(client) = client {
            let is_blocked = self.waiting(false).contains(&client);
            self.real.kill_waiter(client, is_blocked);
            self.oracle.kill_waiter(client, &self.scene);
        }
    }

    /// Whether the server lets a command through.
    fn lets_in(&self, mut keys: impl Iterator<Item = Place>) -> bool {
        let scene = &self.scene;
        scene.is_primary && scene.may_write() && keys.all(|at| scene.serves(at))
    }

    fn command(&mut self, at: Place, request: Request) {
        if !self.lets_in([at].into_iter()) {
            return;
        }
        self.last_client += 1;
        let (client, scene) = (self.last_client, &self.scene);
        self.real.command(client, at, request);
        self.oracle.command(client, at, request, scene);
        self.oracle.finish(scene);
    }

    fn command_for_all(&mut self, keys: Keys, request: Request) {
        if !self.lets_in(keys.iter().map(|(at, _)| at)) {
            return;
        }
        self.last_client += 1;
        let (client, scene) = (self.last_client, &self.scene);
        let has_lock_left = self.real.has_lock_left();
        self.real.take_all(client, keys, request);
        let oracle = &mut self.oracle;
        oracle.take_all(client, keys, request, has_lock_left, scene);
        self.oracle.finish(scene);
    }

    fn end_delivery(&mut self, n: usize, delivered: bool) {
        let in_flight = self.real.memory.in_flight.borrow();
        let mut clients: Vec<Client> = in_flight.iter().map(|(client, _)| *client).collect();
        drop(in_flight);
        clients.sort_unstable();
        if let Some(client) = nth(&clients, n) {
            self.real.end_delivery(client, delivered);
            self.oracle.end_delivery(client, delivered);
        }
    }

    /// A lock whose hold is over and not dropped yet would come to life again. Where somebody
    /// waits, the clock is left alone then; elsewhere the oracle learns what is there.
    fn set_clock(&mut self, ms: i64) {
        let now = self.scene.now_ms;
        for at in self.scene.places() {
            let is_over = match self.real.values().get(&at) {
                Some(Value::Lock(lock, end)) => {
                    let holders = lock.holders();
                    let mut ends = holders.iter().map(|(_, hold)| hold.deadline).chain(*end);
                    ends.any(|end| end.is_over(now))
                }
                _ => false,
            };
            if ms < 0 && is_over && !self.oracle.queue(at).is_empty() {
                return;
            }
        }
        let (real, fences) = (&self.real, &self.fences);
        self.oracle.holds.retain(|hold| {
            let name = [hold.token];
            let values = real.values();
            let fence = match values.get(&hold.at) {
                Some(Value::Lock(lock, _)) => lock.fence_of(Token::new(&name).unwrap()),
                _ => None,
            };
            fence.map(|fence| fence.get()) == fences.get(&hold.id).copied()
        });
        self.oracle.ends.retain(|(at, _)| real.has_lock(*at));
        self.scene.now_ms = now.saturating_add_signed(ms).max(1);
    }

    /// What is done to keys without a command of ours. The server says whether there is anything to
    /// do it to.
    fn keyspace(&mut self, op: Op) {
        let scene = self.scene;
        let is_here = |world: &mut Self, at| scene.serves(at) && world.real.look_up(at);
        match op {
            Op::Delete(at) if is_here(self, at) => {
                self.real.delete(at);
                self.oracle.clear(at);
            }
            Op::Overwrite(at) if scene.serves(at) => {
                self.real.look_up(at);
                self.real.overwrite(at);
                self.oracle.clear(at);
                self.oracle.others.push(at);
            }
            // MOVE overwrites nothing.
            Op::Rename(from, to) if from != to && is_here(self, from) => {
                let is_taken = is_here(self, to);
                if scene.serves(to) && (from.db == to.db || !is_taken) {
                    self.real.rename(from, to);
                    self.oracle.rename(from, to);
                    self.without_ttl.clear();
                }
            }
            Op::Copy(from, to, with_ttl) if from != to && is_here(self, from) => {
                self.real.look_up(to);
                self.real.copy(from, to, with_ttl);
                self.oracle.copy(from, to, with_ttl);
                if !with_ttl {
                    self.without_ttl.push(to);
                }
            }
            Op::Restore(at, tokens, ttl) if scene.serves(at) => self.restore(at, tokens, ttl),
            Op::SwapDbs(one, other) if one != other => {
                self.real.swap_dbs(one, other);
                self.oracle.swap_dbs(one, other);
                self.without_ttl.clear();
            }
            Op::Flush(db) => {
                self.real.flush(db);
                self.oracle.flush(db);
            }
            Op::Persist(at) if is_here(self, at) && self.real.set_end(at, None) => {
                self.oracle.set_end(at, None);
                self.without_ttl.clear();
            }
            Op::Expire(at, ms) if is_here(self, at) => {
                let end = scene.now_ms + ms;
                if self.real.set_end(at, Some(end)) {
                    self.oracle.set_end(at, Some(end));
                }
            }
            Op::ExpireCycle => {
                for at in scene.places() {
                    self.real.look_up(at);
                }
            }
            _ => {}
        }
    }

    /// The timer goes off if it is set for now, and again as long as it is.
    fn timer(&mut self) {
        self.real.run_timer();
        self.oracle.timer(&self.scene);
        // The timer looks at all keys, and later again where it cannot.
        self.oracle.unserved.clear();
    }

    /// The blocked clients, in the order in which they have come, and with them perhaps those that
    /// listen by a channel.
    fn waiting(&self, by_channel: bool) -> Vec<Client> {
        let requests = self.oracle.places.iter().flat_map(|place| &place.requests);
        let blocked = requests.filter(|request| by_channel || !request.is_channel);
        let mut waiting: Vec<Client> = blocked.map(|request| request.client).collect();
        waiting.sort_unstable();
        waiting
    }
}

/// Whoever hears what is published for a token. A message names a key and no client.
fn heard_by(at: Place, token: u8, event: Event) -> Client {
    let db = match event {
        Event::Granted(_) => at.db,
        // The timer tells of timeouts from any database.
        _ => 0,
    };
    [db, at.name, token]
        .into_iter()
        .fold(FIRST_OF_CHANNELS >> 24, |id, part| {
            id << 8 | Client::from(part)
        })
}

/// Those from here on are no clients, but listen to channels.
const FIRST_OF_CHANNELS: Client = 1 << 30;

/// The name of a token's channel. Some tokens share one, as the callers of one process do.
fn channel_of(token: u8) -> [u8; 1] {
    [token % 2]
}

/// Chooses the last one.
const LAST: usize = usize::MAX;

fn nth(clients: &[Client], n: usize) -> Option<Client> {
    match n {
        LAST => clients.last().copied(),
        _ => clients.get(n % clients.len().max(1)).copied(),
    }
}
