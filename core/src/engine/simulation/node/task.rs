//! A command or a turn of the timer on the server in memory, and its open keys.

use std::cell::Cell;

use super::super::{at, Place, Request};
use super::memory::{Ctx, Memory, Toy, Value};
use super::replica::Change;
use super::words::Waits;
use crate::command::acquire::{self, Acquire};
use crate::command::once;
use crate::command::{rlock, Args, Error, Reply};
use crate::engine::guard::slots::Cluster;
use crate::engine::host::{Found, Host, Key, Name, Parts, Purpose, Server, WrongType};
use crate::engine::{self, check, command, several, Event as KeyEvent, Machine, Shared};
use crate::lock::slot::slot_of;
use crate::lock::{Deadline, Effect, Fate, Lock, Mode, Token};

/// A command or the timer at work.
pub(super) struct Task<'n> {
    machine: &'n mut Machine<Toy>,
    shared: &'n Shared<Toy>,
    memory: &'n Memory,
    /// The keys of the command. They are its words from [`FIRST_KEY`] on, or the only key.
    keys: Vec<Place>,
}

/// The word that is the first of several keys.
const FIRST_KEY: usize = crate::engine::macquire::FIRST_KEY;

impl<'n> Task<'n> {
    pub(super) fn begin(
        machine: &'n mut Machine<Toy>,
        shared: &'n Shared<Toy>,
        memory: &'n Memory,
        keys: Vec<Place>,
    ) -> Self {
        shared.inbox.may_change();
        shared.drain(memory.ctx(), machine);
        Self {
            machine,
            shared,
            memory,
            keys,
        }
    }

    /// Ends a command: it replies if it has failed, and finishes the step.
    pub(super) fn end(mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.memory.ctx().reply(Reply::Error(error));
        }
        several::finish(&mut self);
    }

    /// Runs a command for one key.
    pub(super) fn run(mut self, what: Request) {
        let token = [what.token()];
        let owner = Token::new(&token).unwrap();
        let ttl = what.ttl().ms().to_string();
        let linger_ms = self.memory.linger_ms.get();
        let result = match what {
            Request::Take {
                mode, limits, keep, ..
            } => {
                let mut options = vec![&token[..], ttl.as_bytes()];
                let limit = mode.tolerates().to_string();
                let wanted = match mode {
                    Mode::Shared => rlock::WANTED,
                    Mode::Exclusive => acquire::WANTED,
                    Mode::Counted(_) => {
                        options.extend([b"LIMIT", limit.as_bytes()]);
                        acquire::WANTED
                    }
                };
                let words = Waits::new(what.token(), limits, keep, linger_ms);
                options.extend(words.words());
                let result = self.memory.asked.get().map(|name| [name]);
                let acquire = match &result {
                    None => Acquire::parse(wanted, Args::new(options.into_iter())),
                    Some(name) => {
                        let options = options.into_iter().chain([&b"EARLY"[..], b"5"]);
                        once::parse(Args::new([&name[..]].into_iter().chain(options)))
                    }
                };
                engine::take_hold(&mut self, &acquire.unwrap())
            }
            Request::Release(_) => command::release(&mut self, owner, 0),
            Request::ReleaseLater(_, ms) => command::release(&mut self, owner, ms),
            Request::Check(_) => check(&mut self, owner),
            Request::Exec(_) => {
                let is_held = engine::must_hold(&mut self, owner);
                is_held.map(|()| {
                    self.server().reply(Reply::Done(true));
                    if let Some(name) = self.memory.asked.get() {
                        let value = Found::Value([name].into(), None);
                        let place = at(self.memory.db.get() as u8, name);
                        self.memory.results.borrow_mut().insert(place, value);
                        engine::serve_results(&mut self);
                    }
                })
            }
            Request::Renew(..) => command::renew(&mut self, owner, what.ttl()),
            Request::Cancel(of) => engine::cancel::run(&mut self, of.map(|_| owner)),
        };
        self.end(result);
    }

    /// Another module hears that a key has expired, and runs a command.
    fn react(&mut self) {
        let reaction = self.memory.reactions.borrow_mut().pop();
        let Some((client, at, what)) = reaction else {
            return;
        };
        let (db, outer) = (self.memory.db.get(), self.memory.client.replace(client));
        self.memory.db.set(at.db.into());
        Task::begin(self.machine, self.shared, self.memory, vec![at]).run(what);
        self.memory.db.set(db);
        self.memory.client.set(outer);
    }

    fn place_of(&self, name: &[u8]) -> Place {
        at(self.memory.db.get().try_into().unwrap(), name[0])
    }

    fn open_at(&mut self, place: Place, purpose: Purpose) -> Result<Open<'_, 'n>, WrongType> {
        let before = self.shared.inbox.changes();
        self.memory.look_up(self.shared, place);
        if self.shared.inbox.changes() != before {
            self.react();
        }
        let mut key = Open {
            machine: self.machine,
            shared: self.shared,
            memory: self.memory,
            place,
            purpose,
            lock: None,
            end: Cell::new(None),
        };
        key.take()?;
        Ok(key)
    }

    fn word(&self, word: usize) -> Option<Place> {
        let n = word.saturating_sub(FIRST_KEY);
        self.keys.get(n).copied()
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        self.shared.note_names_matter(self.machine);
    }
}

impl<'n> Host for Task<'n> {
    type Server = Ctx<'n>;
    type Name = [u8; 1];
    type Key<'k>
        = Open<'k, 'n>
    where
        Self: 'k;

    fn server(&self) -> Ctx<'n> {
        self.memory.ctx()
    }

    fn shared(&self) -> &Shared<Toy> {
        self.shared
    }

    fn machine(&mut self) -> &mut Machine<Toy> {
        self.machine
    }

    fn drain(&mut self) {
        self.shared.drain(self.memory.ctx(), self.machine);
    }

    fn name(&self, name: &[u8]) -> [u8; 1] {
        [name[0]]
    }

    fn open<'k>(
        &'k mut self,
        name: &'k [u8; 1],
        purpose: Purpose,
    ) -> Result<Open<'k, 'n>, WrongType> {
        let place = self.place_of(name);
        self.open_at(place, purpose)
    }

    fn open_key(&mut self, purpose: Purpose) -> Result<Open<'_, 'n>, Error> {
        self.open_word(FIRST_KEY, purpose)
    }

    fn open_word(&mut self, word: usize, purpose: Purpose) -> Result<Open<'_, 'n>, Error> {
        let place = self.word(word).ok_or(Error::Arity)?;
        let key = self.open_at(place, purpose);
        key.map_err(|WrongType| Error::WrongType)
    }

    fn serves(&mut self, name: &[u8; 1]) -> bool {
        let place = self.place_of(name);
        self.memory.scene.get().serves(place)
    }

    fn serves_word(&mut self, word: usize) -> bool {
        let place = self.word(word);
        place.is_some_and(|place| self.memory.scene.get().serves(place))
    }

    fn serves_slot(&mut self, slot: u16) -> bool {
        let scene = self.memory.scene.get();
        let mut places = scene
            .places()
            .filter(|place| slot_of(&[place.name]) == slot);
        places.all(|place| scene.serves(place))
    }

    fn cluster(&mut self) -> Option<Cluster> {
        None
    }

    fn refuses_writes(&mut self) -> bool {
        self.memory.scene.get().refuses_writes
    }

    fn may_be_heard(&mut self, channel: &[u8]) -> bool {
        self.memory.may_be_heard(channel)
    }
}

/// A key, open until it is dropped. Meanwhile its value is here, and not in the server.
pub(super) struct Open<'k, 'n> {
    machine: &'k mut Machine<Toy>,
    shared: &'n Shared<Toy>,
    memory: &'n Memory,
    place: Place,
    purpose: Purpose,
    lock: Option<Lock>,
    end: Cell<Option<Deadline>>,
}

#[derive(Clone, Copy)]
pub(super) struct OpenName(u8);

impl Name for OpenName {
    fn bytes(&self) -> &[u8] {
        std::slice::from_ref(&self.0)
    }
}

impl Open<'_, '_> {
    /// Takes the value out of the server.
    fn take(&mut self) -> Result<(), WrongType> {
        let mut values = self.memory.values.borrow_mut();
        match values.remove(&self.place) {
            Some(Value::Lock(lock, end)) => {
                (self.lock, self.end) = (Some(lock), Cell::new(end));
                Ok(())
            }
            Some(Value::Other) => {
                values.insert(self.place, Value::Other);
                Err(WrongType)
            }
            None => Ok(()),
        }
    }

    fn put_back(&mut self) {
        if let Some(lock) = self.lock.take() {
            let value = Value::Lock(lock, self.end.get());
            let before = self.memory.values.borrow_mut().insert(self.place, value);
            assert!(before.is_none(), "a key was opened twice");
        }
    }
}

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl<'n> Key for Open<'_, 'n> {
    type Server = Ctx<'n>;
    type Name = OpenName;

    fn server(&self) -> Ctx<'n> {
        self.memory.ctx()
    }

    fn name(&self) -> OpenName {
        OpenName(self.place.name)
    }

    fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    fn parts(&mut self) -> Parts<'_, Self> {
        Parts {
            lock: self.lock.as_ref(),
            machine: self.machine,
            shared: self.shared,
        }
    }

    fn shared(&self) -> &Shared<Toy> {
        self.shared
    }

    fn deadline(&self) -> Option<Deadline> {
        self.end.get()
    }

    fn apply(&mut self, effect: &Effect<'_>) -> bool {
        assert_eq!(self.purpose, Purpose::Write);
        self.lock = match self.lock.take() {
            Some(mut lock) => (effect.apply_to(&mut lock) == Fate::Held).then_some(lock),
            None => effect.apply_to_absent(),
        };
        let deadline = self.lock.as_ref().and_then(Lock::latest_deadline);
        self.end.set(deadline);
        true
    }

    fn replicate(&mut self, effect: &Effect<'_>, ends_lock: bool) {
        let change = || Change::of_effect(effect, ends_lock);
        self.memory.send(self.place, change);
    }

    fn note(&self, _event: KeyEvent) {}

    fn result(&mut self, name: &[u8], _with_ttl: bool) -> Result<Found, WrongType> {
        self.put_back();
        let found = self.memory.result(name);
        self.memory.look_up(self.shared, self.place);
        self.take()?;
        Ok(found)
    }

    fn may_be_heard(&mut self, channel: &[u8]) -> Result<bool, WrongType> {
        self.put_back();
        let may_be_heard = self.memory.may_be_heard(channel);
        self.memory.look_up(self.shared, self.place);
        self.take()?;
        Ok(may_be_heard)
    }
}
