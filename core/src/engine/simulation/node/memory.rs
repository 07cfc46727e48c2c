//! The server in memory: values, clients, channels and clocks.

// Long because: it is a whole server.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU64;
use std::rc::Rc;

use super::super::{at, heard_by, Client, Event, Place, Request, Scene, DBS};
use super::log::{Log, Said};
use super::replica::{Change, Record};
use crate::command::guard::Beat;
use crate::command::{Error, Reply};
use crate::engine::guard;
use crate::engine::guard::quorum::Replicas;
use crate::engine::host::{Found, Server, Work};
use crate::engine::sweep::Findings;
use crate::engine::{Count, Message, Note, Outcome, Shared, Types};
use crate::lock::{Deadline, Hold, Lock, Now, Token};
use crate::wait::{Delivery, KeyRef, Leaving, Limits};

/// The types of the server in memory.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct Toy;

impl Types for Toy {
    type Client = Client;
    /// A seed plays the same history each time.
    type Hasher = BuildHasherDefault<DefaultHasher>;
    /// The last key that was seen.
    type Cursor = Option<Place>;
}

/// What is under a key.
#[derive(Clone, Debug)]
pub(in super::super) enum Value {
    /// A lock, and when its key ends by itself.
    Lock(Lock, Option<Deadline>),
    Other,
}

/// Everything of a server but the machine.
#[derive(Clone)]
pub(in super::super) struct Memory {
    pub(in super::super) values: RefCell<BTreeMap<Place, Value>>,
    pub(in super::super) scene: Cell<Scene>,
    /// After how many looks at the clock it goes on by a millisecond; `None` is by itself only.
    pub(in super::super) looks_left: Cell<Option<u32>>,
    /// Whether the server says if somebody listens to a channel, as a node of a cluster does.
    pub(in super::super) says_who_listens: bool,
    /// The database that is selected.
    pub(super) db: Cell<i32>,
    /// The client of the running command; 0 is none.
    pub(super) client: Cell<Client>,
    /// Whether a callback has set the timer to go off at once.
    pub(super) is_armed: Cell<bool>,
    /// Grants whose replies are on their way.
    pub(in super::super) in_flight: RefCell<Vec<(Client, Delivery)>>,
    /// What clients got in this step.
    pub(in super::super) events: RefCell<Vec<(Client, Event)>>,
    /// The counters.
    pub(in super::super) counts: RefCell<[u64; Count::ALL.len()]>,
    /// What is to be sent to replicas. `None` where nobody asks for it.
    pub(super) sent: RefCell<Option<Vec<Record>>>,
    /// For how long holds stay when the connections of their requests end, in milliseconds.
    pub(in super::super) linger_ms: Cell<Option<u64>>,
    /// The connection of the running command. `None` where each request has its own.
    pub(in super::super) connection: Cell<Option<NonZeroU64>>,
    /// What another module runs when a key is opened that has expired, the next one last: for whom,
    /// and on which key.
    pub(in super::super) reactions: RefCell<Vec<(Client, Place, Request)>>,
    /// The result that the running command asks for or writes.
    pub(in super::super) asked: Cell<Option<u8>>,
    /// The results of each database that are not [`Found::Nothing`].
    pub(in super::super) results: RefCell<BTreeMap<Place, Found>>,
    /// The settings of the guard.
    pub(in super::super) guard: Cell<guard::Settings>,
    /// Those that follow this server.
    pub(in super::super) replicas: RefCell<Replicas>,
    /// What clients see, if somebody reads it.
    pub(in super::super) log: RefCell<Option<Log>>,
    /// What the server logs, if somebody reads it.
    pub(in super::super) lines: RefCell<Option<Vec<String>>>,
}

/// The server, for calls that do not come back.
#[derive(Clone, Copy)]
pub(in super::super) struct Ctx<'m>(&'m Memory);

/// A connection for each request.
pub(super) fn connection_of(client: Client) -> NonZeroU64 {
    NonZeroU64::new(u64::from(client) + 1).unwrap()
}

impl Memory {
    /// Both clocks go on.
    pub(in super::super) fn go_on(&self, ms: u64) {
        let mut scene = self.scene.get();
        scene.go_on(ms);
        self.scene.set(scene);
    }

    pub(super) fn new(says_who_listens: bool) -> Self {
        Self {
            values: RefCell::default(),
            scene: Cell::new(Scene::new()),
            looks_left: Cell::new(None),
            says_who_listens,
            db: Cell::new(0),
            client: Cell::new(0),
            is_armed: Cell::new(false),
            in_flight: RefCell::default(),
            events: RefCell::default(),
            counts: RefCell::new([0; Count::ALL.len()]),
            sent: RefCell::new(None),
            linger_ms: Cell::new(Some(0)),
            connection: Cell::default(),
            reactions: RefCell::default(),
            asked: Cell::default(),
            results: RefCell::default(),
            guard: Cell::default(),
            replicas: RefCell::default(),
            log: RefCell::default(),
            lines: RefCell::default(),
        }
    }

    /// Notes a change for the replicas.
    pub(super) fn send(&self, at: Place, change: impl FnOnce() -> Change) {
        if let Some(sent) = self.sent.borrow_mut().as_mut() {
            let change = change();
            sent.push(Record { at, change });
        }
    }

    pub(super) fn ctx(&self) -> Ctx<'_> {
        Ctx(self)
    }

    fn event(&self, client: Client, event: Event) {
        self.events.borrow_mut().push((client, event));
    }

    /// Notes a reply for whoever reads it.
    pub(super) fn say(&self, client: Client, said: impl Into<Said>) {
        if let Some(log) = &mut *self.log.borrow_mut() {
            log.replies.push((client, said.into()));
        }
    }

    /// Where the server does not say who listens, the count of a message's receivers decides.
    pub(super) fn may_be_heard(&self, channel: &[u8]) -> bool {
        match &*self.log.borrow() {
            Some(log) => log.heard_channels.contains(channel),
            None => !self.says_who_listens || self.scene.get().has_subscribers,
        }
    }

    pub(super) fn result(&self, name: &[u8]) -> Found {
        let place = at(self.db.get() as u8, name[0]);
        let results = self.results.borrow();
        results.get(&place).cloned().unwrap_or(Found::Nothing)
    }

    pub(super) fn look_up(&self, shared: &Shared<Toy>, at: Place) -> bool {
        let scene = self.scene.get();
        let is_over = match self.values.borrow().get(&at) {
            Some(Value::Lock(_, end)) => end.is_some_and(|end| end.is_over(scene.now_ms)),
            Some(Value::Other) => false,
            None => return false,
        };
        if is_over && scene.is_primary {
            self.delete(shared, at);
        }
        self.values.borrow().contains_key(&at)
    }

    pub(super) fn delete(&self, shared: &Shared<Toy>, at: Place) {
        let value = self.values.borrow_mut().remove(&at);
        if value.is_some() {
            self.send(at, || Change::Deleted);
        }
        if let Some(Value::Lock(lock, _)) = value {
            self.lock_left(shared, at, &lock);
        }
    }

    /// A lock has left its key, as `unlink` says.
    pub(super) fn lock_left(&self, shared: &Shared<Toy>, at: Place, lock: &Lock) {
        let db = at.db.into();
        let name = [at.name];
        shared.inbox.may_change();
        if shared.bindings.are_any() {
            let bindings = &shared.bindings;
            bindings.change(|all| all.lock_left(db, &name, lock));
        }
        if shared.inbox.do_names_matter() {
            let name = name.into();
            shared.inbox.leave(Note::Left { db, name });
            self.is_armed.set(true);
        }
        if !shared.inbox.lock_left() {
            self.is_armed.set(true);
        }
    }
}

impl Server for Ctx<'_> {
    type Types = Toy;

    fn command_time(self) -> Now {
        self.now()
    }

    fn now(self) -> Now {
        let looks_left = self.0.looks_left.take();
        match looks_left {
            Some(0) => self.0.go_on(1),
            _ => self.0.looks_left.set(looks_left.map(|n| n - 1)),
        }
        self.0.scene.get().now()
    }

    fn meanwhile(self, now: Now, _has_gone_on: bool) -> Now {
        now
    }

    fn monotonic_us(self) -> u64 {
        self.0.scene.get().mono_us
    }

    fn boot_us(self) -> u64 {
        self.0.scene.get().mono_us
    }

    /// Some work stops after two steps. The order of the rest is the oracle's. Where nobody hears
    /// of grants, the order of keys decides which places of a channel are left.
    fn has_time(self, work: Work, _until_us: u64) -> bool {
        match work {
            Work::End => true,
            Work::Pass => !self.0.scene.get().has_subscribers,
            Work::Serve => false,
        }
    }

    fn is_primary(self) -> bool {
        self.0.scene.get().is_primary
    }

    fn is_cluster(self) -> bool {
        true
    }

    fn is_loading(self) -> bool {
        false
    }

    fn must_not_write(self) -> bool {
        self.0.scene.get().pauses_writes
    }

    fn selected_db(self) -> i32 {
        self.0.db.get()
    }

    fn select_db(self, db: i32) -> bool {
        let is_there = db < i32::from(DBS);
        if is_there {
            self.0.db.set(db);
        }
        is_there
    }

    fn has_locks(self) -> bool {
        let values = self.0.values.borrow();
        values
            .values()
            .any(|value| matches!(value, Value::Lock(..)))
    }

    fn begin_scan(self) -> Option<Option<Place>> {
        Some(None)
    }

    fn scan(self, cursor: &mut Option<Place>, findings: &mut Findings) -> bool {
        let (db, values) = (self.0.db.get() as u8, self.0.values.borrow());
        let first = cursor.unwrap_or(at(db, 0));
        let is_next = |place: &Place| place.db == db && (cursor.is_none() || *place > first);
        let Some((place, value)) = values.iter().find(|(place, _)| is_next(place)) else {
            return false;
        };
        if let Value::Lock(lock, end) = value {
            findings.look_at(lock, end.is_some(), || Rc::from([place.name]));
        }
        *cursor = Some(*place);
        true
    }

    fn may_block(self) -> bool {
        let log = self.0.log.borrow();
        let is_in_transaction = log.as_ref().is_some_and(|log| log.is_in_transaction);
        Server::is_primary(self) && !is_in_transaction
    }

    fn may_read(self, _key: &KeyRef) -> bool {
        true
    }

    fn connection(self) -> Option<NonZeroU64> {
        let own = || connection_of(self.0.client.get());
        Some(self.0.connection.get().unwrap_or_else(own))
    }

    fn block(self) -> Option<Client> {
        let client = self.0.client.get();
        self.0.event(client, Event::Waits);
        Some(client)
    }

    fn unblock(self, client: Client, outcome: Outcome) {
        outcome.reply(|reply| {
            self.0.event(client, event_of(reply));
            self.0.say(client, reply);
        });
        if let Outcome::Granted(grant, _) = outcome {
            self.0.in_flight.borrow_mut().push((client, grant));
        }
    }

    fn abort(self, client: Client) {
        let blocked = self.0.events.borrow_mut().pop();
        assert_eq!(blocked, Some((client, Event::Waits)));
    }

    fn release(self, _client: Client) {}

    fn reply(self, reply: Reply<'_>) {
        self.0.event(self.0.client.get(), event_of(reply));
        self.0.say(self.0.client.get(), reply);
    }

    fn reply_error(self, text: &CStr) {
        self.0.event(self.0.client.get(), Event::Deadlock);
        let text = text.to_str().unwrap().to_string();
        self.0.say(self.0.client.get(), Said::Error(text));
    }

    fn publish(self, channel: &[u8], message: Message, key: &[u8], token: Token<'_>) -> bool {
        if let Some(log) = &mut *self.0.log.borrow_mut() {
            return log.publish(channel, message, key, token);
        }
        let is_heard = self.0.scene.get().has_subscribers;
        if is_heard {
            let event = match message {
                Message::Granted(fence) => Event::Granted(fence.get()),
                Message::TimedOut => Event::Null,
                Message::Result => Event::Value(0),
                Message::Error(error) => event_of(Reply::Error(error)),
            };
            let place = at(self.0.db.get() as u8, key[0]);
            let token = token.as_bytes()[0];
            self.0.event(heard_by(place, token, event), event);
        }
        is_heard
    }

    fn detects_deadlocks(self) -> bool {
        self.0.scene.get().detects_deadlocks
    }

    fn leaving(self) -> Leaving {
        Leaving {
            now_us: self.monotonic_us(),
            absent_per_key: self.0.scene.get().room.absent_per_key,
        }
    }

    fn limits(self, _waiting: usize) -> (Limits, Option<Box<[u8]>>) {
        (self.0.scene.get().room, None)
    }

    fn guard(self) -> guard::Settings {
        self.0.guard.get()
    }

    fn replicas(self) -> Replicas {
        self.0.replicas.borrow().clone()
    }

    fn beat(self, beat: Beat) {
        self.0.send(at(0, 0), || Change::Beat(beat));
    }

    /// They acknowledge everything anyway.
    fn ask_replicas(self) {}

    fn count_many(self, of: Count, n: usize) {
        self.0.counts.borrow_mut()[of as usize] += n as u64;
    }

    fn waited(self, _us: u64) {}

    fn held(self, _hold: &Hold, _now: Now) {}

    fn log(self, line: &CStr) {
        if let Some(lines) = &mut *self.0.lines.borrow_mut() {
            lines.push(line.to_str().unwrap().into());
        }
    }
}

fn event_of(reply: Reply<'_>) -> Event {
    match reply {
        Reply::Fence(fence) => Event::Granted(fence.get()),
        Reply::Pair(_, fence) => Event::Early(fence.get()),
        Reply::Value(value) => Event::Value(value[0]),
        Reply::Null => Event::Null,
        Reply::Done(done) => Event::Done(done),
        Reply::Count(n) => Event::Count(n.try_into().unwrap()),
        Reply::Queued => Event::Waits,
        Reply::Error(Error::Deadlock) => Event::Deadlock,
        Reply::Error(Error::Partial) => Event::Partial,
        Reply::Error(Error::TryAgain | Error::NotYet) => Event::TryAgain,
        Reply::Error(Error::WrongType) => Event::WrongType,
        Reply::Error(Error::Cancelled) => Event::Cancelled,
        // The oracle has none of these: it refuses nothing for its words.
        Reply::Error(_) => Event::Refused,
    }
}
