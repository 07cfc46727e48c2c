//! The real side: the registry, the locks and the fence clock, driven as the server's shell drives them.
//!
//! Each function has its twin in the shell and does the same in the same order. Only the server is a toy: a map of values, and a call
//! of [`Shell::lock_left`] where a server would call `unlink`.

// Long because: it plays the whole shell.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::{linger_of, Client, Event, Limits, Place, Request, Scene, EVERY_DB};
use crate::lock::{Deadline, Effect, Fate, Fence, FenceClock, Lock, Now, Refusal, Token, TokenBuf};
use crate::wait::{Entered, Grant, KeyRef, Listener, NewRequest, Registry, Removed, Step};

/// A seed plays the same history each time.
type SameEachTime = BuildHasherDefault<DefaultHasher>;

/// What is under a key.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A lock, and when its key ends by itself.
    Lock(Lock, Option<Deadline>),
    Other,
}

impl Value {
    const fn lock(&self) -> Option<&Lock> {
        match self {
            Self::Lock(lock, _) => Some(lock),
            Self::Other => None,
        }
    }
}

#[derive(Clone)]
pub(super) struct Shell {
    pub(super) values: BTreeMap<Place, Value>,
    pub(super) registry: Registry<Client, SameEachTime>,
    pub(super) fences: Fences,
    /// Grants whose replies are on their way.
    pub(super) in_flight: Vec<(Client, Grant)>,
    pub(super) events: Vec<(Client, Event)>,
    /// When the patrol went last; `None` is long ago.
    pub(super) patrolled_us: Option<u64>,
    /// When the slots were looked at last; `None` is long ago.
    pub(super) slots_seen_us: Option<u64>,
    pub(super) is_sweep_due: bool,
    pub(super) is_sweep_requested: bool,
    /// Whether the server says which database a lock has left, or has come to.
    pub(super) says_db: bool,
}

/// The server has one fence clock, each world its own.
pub(super) struct Fences(pub(super) FenceClock);

impl Clone for Fences {
    fn clone(&self) -> Self {
        let mut clock = FenceClock::new();
        self.0
            .last()
            .into_iter()
            .for_each(|last| clock.observe(last));
        Self(clock)
    }
}

pub(super) fn key_ref(at: Place) -> KeyRef {
    KeyRef::new(at.db.into(), &[at.name])
}

pub(super) fn place(key_ref: &KeyRef) -> Place {
    Place {
        db: key_ref.db.try_into().unwrap(),
        name: key_ref.name[0],
    }
}

/// The server's part.
impl Shell {
    pub(super) fn new(says_db: bool) -> Self {
        Self {
            values: BTreeMap::new(),
            registry: Registry::default(),
            fences: Fences(FenceClock::new()),
            in_flight: Vec::new(),
            events: Vec::new(),
            patrolled_us: Some(0),
            slots_seen_us: Some(0),
            is_sweep_due: false,
            is_sweep_requested: false,
            says_db,
        }
    }

    pub(super) fn lock(&self, at: Place) -> Option<&Lock> {
        self.values.get(&at)?.lock()
    }

    pub(super) fn end(&self, at: Place) -> Option<Deadline> {
        match self.values.get(&at)? {
            Value::Lock(_, end) => *end,
            Value::Other => None,
        }
    }

    /// Looks a key up as a server does for a write: a primary deletes what has expired.
    pub(super) fn look_up(&mut self, at: Place, scene: &Scene) -> bool {
        let is_over = self.end(at).is_some_and(|end| end.is_over(scene.now_ms));
        if is_over && scene.is_primary {
            self.delete(at);
        }
        self.values.contains_key(&at)
    }

    /// DEL.
    pub(super) fn delete(&mut self, at: Place) {
        if let Some(Value::Lock(..)) = self.values.remove(&at) {
            self.lock_left(at);
        }
    }

    pub(super) fn overwrite(&mut self, at: Place) {
        self.note_arrival(at);
        self.delete(at);
        self.values.insert(at, Value::Other);
    }

    /// RENAME and MOVE, to a key that may have something.
    pub(super) fn rename(&mut self, from: Place, to: Place) {
        let value = self.values.remove(&from).unwrap();
        self.note_arrival(to);
        self.delete(to);
        // The server deletes the old key last, with the value under the new one already.
        let is_lock = matches!(value, Value::Lock(..));
        self.values.insert(to, value);
        if is_lock {
            self.lock_left(from);
        }
    }

    /// DUMP, and RESTORE REPLACE.
    pub(super) fn copy(&mut self, from: Place, to: Place, with_ttl: bool) {
        let value = self.values.get(&from).unwrap().clone();
        let is_lock = matches!(value, Value::Lock(..));
        if is_lock {
            let db = self.says_db.then_some(to.db.into());
            self.registry.mark_anyway(db, &[to.name]);
        } else {
            self.note_arrival(to);
        }
        self.delete(to);
        let value = match value {
            Value::Lock(lock, end) => Value::Lock(lock, end.filter(|_| with_ttl)),
            Value::Other => Value::Other,
        };
        self.values.insert(to, value);
    }

    pub(super) fn swap_dbs(&mut self, one: u8, other: u8) {
        let values = std::mem::take(&mut self.values);
        let swap = |db| match db {
            _ if db == one => other,
            _ if db == other => one,
            _ => db,
        };
        let swapped = values.into_iter().map(|(at, value)| {
            let db = swap(at.db);
            (Place { db, ..at }, value)
        });
        self.values = swapped.collect();
        self.registry.swap_dbs(one.into(), other.into());
        if self.is_sweep_due {
            self.is_sweep_requested = true;
        }
    }

    pub(super) fn flush(&mut self, db: u8) {
        self.values.retain(|at, _| db != EVERY_DB && at.db != db);
        self.registry.mark_db((db != EVERY_DB).then_some(db.into()));
    }

    /// PEXPIRE, and PERSIST.
    pub(super) fn set_end(&mut self, at: Place, end_ms: Option<u64>) -> bool {
        // Nobody tells of it: the patrol is to notice.
        self.patrolled_us = None;
        match self.values.get_mut(&at) {
            Some(Value::Lock(_, end)) => {
                *end = end_ms.and_then(Deadline::from_millis);
                true
            }
            _ => false,
        }
    }

    /// Nobody tells of what comes to a key that has nothing: the patrol is to notice.
    fn note_arrival(&mut self, at: Place) {
        if self.lock(at).is_none() {
            self.patrolled_us = None;
        }
    }

    fn lock_left(&mut self, at: Place) {
        let db = self.says_db.then_some(at.db.into());
        self.registry.deliveries.left(db, &[at.name]);
        match db {
            Some(db) => self.registry.mark_replaced(db, &[at.name]),
            None => self.registry.mark_in_all_dbs(&[at.name]),
        };
    }

    pub(super) fn demoted(&mut self, disconnects: bool, waiting: &[Client], scene: &Scene) {
        self.patrolled_us = None;
        for client in waiting.iter().filter(|_| disconnects) {
            self.kill_waiter(*client, scene);
        }
    }

    pub(super) fn promoted(&mut self, scene: &Scene) {
        let ahead = scene.now().us() + 1_000;
        self.fences.0.observe(Fence::new(ahead).unwrap());
        self.request_sweep();
    }

    pub(super) fn request_sweep(&mut self) {
        self.is_sweep_requested = true;
        self.is_sweep_due = true;
    }
}

/// Clients.
impl Shell {
    pub(super) fn command(&mut self, client: Client, at: Place, what: Request, scene: &Scene) {
        if self.look_up(at, scene) && self.lock(at).is_none() {
            self.events.push((client, Event::WrongType));
            return;
        }
        let now = scene.now();
        let key_ref = self.serve_first(at, scene);
        let name = [what.token()];
        let lock = self.values.get(&at).and_then(Value::lock);
        let token = Token::new(&name).unwrap();
        let is_partial = |key: &KeyRef| self.registry.waits_for_several(key, token);
        if matches!(what, Request::Take { .. }) && key_ref.as_ref().is_some_and(is_partial) {
            self.events.push((client, Event::Partial));
            return self.repair_ttl(at, now);
        }
        let released = match what {
            Request::Release(_) => lock.and_then(|lock| lock.fence_of(token)),
            _ => None,
        };
        let decided = match what {
            Request::Take { .. } => {
                let ask = what.ask(token);
                let asks = (token, ask.mode);
                let ahead = key_ref.as_ref();
                let ahead = ahead.map(|key| self.registry.ahead_of(key, asks, lock, now));
                let ahead = ahead.unwrap_or_default();
                match Lock::acquire(lock, ask, now, ahead.as_waiting(), &mut self.fences.0) {
                    Ok(grant) => Ok((grant.effect, Event::Granted(grant.fence.get()))),
                    Err(refusal @ (Refusal::Busy | Refusal::BusyUpgrade)) => Err(Some(refusal)),
                    Err(_) => {
                        self.events.push((client, Event::Deadlock));
                        if let Some(key_ref) = &key_ref {
                            self.registry.resume(key_ref, token);
                            self.serve_changed(at, key_ref, scene);
                        }
                        return self.repair_ttl(at, now);
                    }
                }
            }
            Request::Release(_) => {
                let effect = lock.and_then(|lock| lock.release(token, now));
                effect.map(|(e, _)| (e, Event::Done(true))).ok_or(None)
            }
            Request::Renew(..) => {
                let effect = lock.and_then(|lock| lock.renew(token, what.ttl(), now));
                effect.map(|e| (e, Event::Done(true))).ok_or(None)
            }
        };
        match decided {
            Ok((effect, event)) => {
                self.events.push((client, event));
                self.commit(at, &effect);
                if let Some(key_ref) = &key_ref {
                    if let Request::Take { .. } = what {
                        self.registry.resume(key_ref, token);
                    }
                    self.serve_changed(at, key_ref, scene);
                }
                let fence = effect.fence().or(released);
                if let (Some(fence), true) = (fence, self.registry.deliveries.is_waiting()) {
                    let deliveries = &mut self.registry.deliveries;
                    deliveries.acknowledge(at.db.into(), &[at.name], fence);
                }
            }
            Err(None) => self.change_nothing(client, at, what, key_ref.as_ref(), scene),
            Err(Some(refusal)) => self.enter(client, at, what, refusal, scene),
        }
    }

    fn change_nothing(
        &mut self,
        client: Client,
        at: Place,
        what: Request,
        key_ref: Option<&KeyRef>,
        scene: &Scene,
    ) {
        let name = [what.token()];
        let token = Token::new(&name).unwrap();
        self.events.push((client, Event::Done(false)));
        if let (Some(key_ref), Request::Release(_)) = (key_ref, what) {
            self.serve_others_later(key_ref, token);
            for removed in self.registry.give_up(key_ref, token) {
                if matches!(removed.listener, Some(Listener::Client(_))) {
                    self.tell(removed, Event::Null);
                }
            }
            self.serve_changed(at, key_ref, scene);
        }
        self.repair_ttl(at, scene.now());
    }

    fn enter(&mut self, client: Client, at: Place, what: Request, why: Refusal, scene: &Scene) {
        let Request::Take {
            mode, limits, keep, ..
        } = what
        else {
            return;
        };
        let name = [what.token()];
        let new_request = NewRequest {
            token: Token::new(&name).unwrap(),
            mode,
            ttl: what.ttl(),
            listener: match limits {
                Limits::NoWait => None,
                _ if limits.is_channel() => Some(Listener::channel(&client.to_be_bytes())),
                _ => Some(Listener::Client(client)),
            },
            times_out_at_us: limits.times_out_at_us(scene),
            keep_ms: (keep > 0).then_some(keep),
            is_server_generated: false,
            linger: Some(linger_of(client)), // So one that listens by a channel can be killed, too.
            refusal: why,
            now: scene.now(),
            now_us: scene.mono_us,
        };
        let key_ref = key_ref(at);
        let entered = self.registry.enter(&key_ref, new_request);
        self.events.push(match entered {
            Entered::Waits { .. } => (client, Event::Waits),
            _ => (client, Event::Null),
        });
        if entered.must_serve() {
            self.serve_changed(at, &key_ref, scene);
        }
    }

    /// A client is gone that waits.
    pub(super) fn kill_waiter(&mut self, client: Client, scene: &Scene) {
        let blocked = self.registry.remove_listener(client, scene.mono_us);
        let by_channel = (self.registry).remove_lingering(linger_of(client).client, scene.mono_us);
        let mut removed = blocked.into_iter().chain(by_channel);
        let key_ref = removed.next().unwrap().key_ref;
        assert!(removed.next().is_none());
        self.registry.mark(key_ref.db, &key_ref.name);
    }

    /// Tells whoever listened, if anybody did.
    pub(super) fn tell(&mut self, removed: Removed<Client>, event: Event) {
        self.events
            .extend(client(&removed).map(|client| (client, event)));
    }

    /// A client is gone before it has heard of its grant, or has heard of it.
    pub(super) fn end_delivery(&mut self, client: Client, delivered: bool) {
        let is_it = |(other, _): &(Client, Grant)| *other == client;
        let at = self.in_flight.iter().position(is_it).unwrap();
        let (_, grant) = self.in_flight.remove(at);
        match delivered {
            true => self.registry.deliveries.delivered(&grant),
            false => self.registry.deliveries.lost(grant),
        }
    }
}

/// Serving.
impl Shell {
    pub(super) fn serve_changed(&mut self, at: Place, key_ref: &KeyRef, scene: &Scene) {
        self.serve_all(at, key_ref, scene);
        self.watch(at, key_ref, scene.now());
    }

    pub(super) fn serve_all(&mut self, at: Place, key_ref: &KeyRef, scene: &Scene) -> bool {
        let (mut changed, now) = (false, scene.now());
        loop {
            let lock = match self.values.get(&at) {
                Some(Value::Lock(lock, _)) => Some(lock),
                _ => None,
            };
            let (registry, fences) = (&mut self.registry, &mut self.fences.0);
            let step = registry.grant_next(key_ref, lock, now, |now| now, fences);
            let Some(step) = step else {
                break;
            };
            changed = true;
            let granted = match step {
                Step::Granted(granted) => Some(granted),
                Step::Offered(offer) if scene.has_subscribers => self.registry.heard(offer),
                Step::Offered(offer) => {
                    let passed_over = self.registry.unheard(offer, scene.mono_us);
                    assert!(passed_over.is_some());
                    None
                }
                Step::Refused(removed, _) => {
                    self.tell(removed, Event::Deadlock);
                    None
                }
            };
            if let Some(granted) = granted {
                self.commit(at, &granted.effect());
                let client = client(&granted.removed).unwrap();
                let fence = granted.hold.fence.get();
                self.events.push((client, Event::Granted(fence)));
                let grant = granted.grant().map(|grant| (client, grant));
                self.in_flight.extend(grant);
            }
        }
        if self.registry.unmark(key_ref) {
            self.repair_ttl(at, now);
            changed = true;
        }
        changed
    }

    pub(super) fn dismiss_all(&mut self, key_ref: &KeyRef, event: Event) {
        for removed in self.registry.dismiss_all(key_ref) {
            self.tell(removed, event);
        }
    }

    pub(super) fn watch(&mut self, at: Place, key_ref: &KeyRef, now: Now) {
        let by_holds = self.registry.wakes_at(key_ref, self.lock(at), now);
        let earliest = by_holds.into_iter().chain(self.end(at)).min();
        let at_ms = earliest.map(|deadline| deadline.ms() + 1);
        self.registry.set_wake(key_ref, at_ms);
    }

    pub(super) fn commit(&mut self, at: Place, effect: &Effect<'_>) {
        let lock = self.lock(at);
        let ends_lock =
            matches!(effect, Effect::Release { .. }) && lock.is_some_and(|l| l.len() == 1);
        if let (Some(lock), Some(end), false) = (lock, self.end(at), ends_lock) {
            if let Some(cap) = lock.cap(end) {
                self.apply(at, &cap);
            }
        }
        self.apply(at, effect);
    }

    fn apply(&mut self, at: Place, effect: &Effect<'_>) {
        let lock = match self.values.remove(&at) {
            Some(Value::Lock(mut lock, _)) => {
                (effect.apply_to(&mut lock) == Fate::Held).then_some(lock)
            }
            _ => effect.apply_to_absent(),
        };
        if let Some(lock) = lock {
            let end = lock.latest_deadline();
            self.values.insert(at, Value::Lock(lock, end));
        }
    }

    pub(super) fn repair_ttl(&mut self, at: Place, now: Now) {
        let Some(lock) = self.lock(at) else {
            return;
        };
        let latest = lock.latest_deadline().unwrap();
        if lock.is_free(now) {
            let token = TokenBuf::from(lock.holders().pop().unwrap().0.as_token());
            let (now_ms, token) = (now.ms(), token.as_token());
            self.commit(at, &Effect::Release { now_ms, token });
        } else if self.end(at).is_none_or(|end| end > latest) {
            self.commit(at, &Effect::Cap { deadline: latest });
        }
    }
}

/// Whoever has asked.
fn client(removed: &Removed<Client>) -> Option<Client> {
    listening(removed.listener.as_ref()?)
}

pub(super) fn listening(listener: &Listener<Client>) -> Option<Client> {
    match listener {
        Listener::Client(client) => Some(*client),
        Listener::Channel(name) => Some(Client::from_be_bytes(name[..].try_into().unwrap())),
    }
}
