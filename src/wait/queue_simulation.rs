//! The places of one key and the lock together against a naive oracle: all short histories, and
//! long random ones.
//!
//! The oracle keeps holds and places in two lists and walks them from end to end. Both sides are
//! served after every step, as the server's shell does. They must grant and refuse the same
//! requests; a new hold's fence tells its rank among the grants. After every step it is also shown
//! that nobody waits for ever, even where no hold ends by its deadline.

// Long because: the world and all its steps belong together.

mod histories;
mod oracle;
mod properties;

use std::hash::{BuildHasherDefault, DefaultHasher};

use super::*;
use crate::lock::*;
use oracle::{NaiveHold, Oracle};

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A request that waits if it must, or does not.
    Ask(Mode, u8, u64, Block),
    Release(u8),
    Renew(u8, u64),
    /// The waiter at this place in the queue gives up.
    Cancel(Seat),
    Tick(u64),
    /// The key goes, as by DEL.
    Delete,
    /// Another lock takes the place of the one under the key, as by RENAME. Two tokens share it, or
    /// one token has it alone.
    Replace(u8, u8, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Yes,
    No,
    /// With KEEP.
    Keep,
    /// With KEEP, without BLOCK.
    NoKeep,
}

/// For how long a place is kept.
const GRACE: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Seat {
    First,
    Last,
    Nth(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request that was granted at once, or refused.
    Answered(Option<u64>),
    Deadlock,
    Waits(u64),
    /// A waiter, and its fence.
    Granted(u64, u64),
    /// A waiter that was told of a deadlock.
    Refused(u64),
    /// A waiter whose token has given its place up.
    GivenUp(u64),
    Done(bool),
}

const FIRST_FENCE: u64 = 1 << 50;

/// What is tested, put together as the shell does it. The wall clock is the monotonic one, too.
#[derive(Clone)]
struct Real {
    lock: Option<Lock>,
    registry: Registry<u64, BuildHasherDefault<DefaultHasher>>,
    key: KeyRef,
    last_fence: u64,
    last_number: u64,
}

impl Real {
    fn ask(&mut self, ask: Ask<'_>, block: Block, now: Now, events: &mut Vec<Event>) {
        let refusal = match self.acquire(ask, now) {
            Ok(fence) => {
                self.registry.lock_granted(&self.key);
                self.registry.resume(&self.keys(), ask.token);
                return events.push(Event::Answered(Some(fence)));
            }
            Err(Refusal::Deadlock) => {
                self.registry.resume(&self.keys(), ask.token);
                return events.push(Event::Deadlock);
            }
            Err(refusal) => refusal,
        };
        let waits = matches!(block, Block::Yes | Block::Keep);
        let keeps = matches!(block, Block::Keep | Block::NoKeep);
        if waits || keeps {
            self.last_number += 1;
        }
        let new = NewRequest {
            token: ask.token,
            mode: ask.mode,
            ttl: ask.ttl,
            listener: waits.then_some(Listener::Client(self.last_number)),
            times_out_at_us: None,
            keep_ms: keeps.then_some(GRACE as u32),
            is_server_generated: false,
            linger: None,
            user: None,
            refusal,
            now_us: now.us(),
        };
        let entered = self.registry.enter(&self.keys(), new);
        let has_entered = matches!(entered, Entered::Waits { .. });
        assert_eq!(has_entered, waits);
        events.push(match waits {
            true => Event::Waits(self.last_number),
            false => Event::Answered(None),
        });
    }

    fn acquire(&mut self, ask: Ask<'_>, now: Now) -> Result<u64, Refusal> {
        let mut fences = self.fences();
        let lock = self.lock.as_ref();
        let waiting = self
            .registry
            .ahead_of(&self.key, (ask.token, ask.mode), lock, now);
        let grant = Lock::acquire(lock, ask, now, waiting, &mut fences)?;
        self.last_fence = fences.last().unwrap().get();
        self.apply(&grant.effect(ask.token));
        Ok(grant.hold.fence.get())
    }

    fn keys(&self) -> Keys {
        Keys::One(self.key.clone())
    }

    fn fences(&self) -> FenceClock {
        let mut fences = FenceClock::new();
        fences.observe(Fence::new(self.last_fence).unwrap());
        fences
    }

    fn apply(&mut self, effect: &Effect<'_>) {
        self.registry.lock_changed(0, &self.key.name, effect);
        match &mut self.lock {
            None => self.lock = effect.apply_to_absent(),
            Some(lock) => {
                if effect.apply_to(lock) == Fate::Free {
                    self.lock = None;
                }
            }
        }
    }

    fn serve(&mut self, now: Now, events: &mut Vec<Event>) {
        loop {
            let mut fences = self.fences();
            let lock = self.lock.as_ref();
            let step = self
                .registry
                .grant_next(&self.key, lock, now, |now| now, &mut fences);
            match step {
                None => return,
                Some(Step::Granted(granted)) => {
                    let fence = granted.grant.hold.fence.get();
                    self.last_fence = self.last_fence.max(fence);
                    self.apply(
                        &granted
                            .grant
                            .effect(granted.removed.token.text().as_token()),
                    );
                    let (client, grant) = granted.into_delivery().unwrap();
                    events.push(Event::Granted(client, fence));
                    self.registry.deliveries.delivered(&grant);
                }
                Some(Step::Refused(removed, refusal)) => {
                    assert_eq!(refusal, Refusal::Deadlock);
                    events.push(Event::Refused(client(&removed)));
                }
                Some(step) => panic!("{step:?}"),
            }
        }
    }

    fn replace(&mut self, asks: &[Ask<'_>], now: Now) {
        self.lock = None;
        self.registry.mark_replaced(0, &self.key.name);
        self.registry.unmark(&self.key);
        for ask in asks {
            let mut fences = self.fences();
            let lock = self.lock.as_ref();
            let grant = Lock::acquire(lock, *ask, now, Waiting::default(), &mut fences).unwrap();
            self.last_fence = fences.last().unwrap().get();
            self.apply(&grant.effect(ask.token));
        }
    }
}

fn client(removed: &Removed<u64>) -> u64 {
    match removed.listener {
        Some(Listener::Client(client)) => client,
        _ => panic!("{removed:?}"),
    }
}

#[derive(Clone)]
struct World {
    now_ms: u64,
    real: Real,
    oracle: Oracle,
}

impl World {
    fn new() -> Self {
        Self {
            now_ms: 1,
            real: Real {
                lock: None,
                registry: Registry::default(),
                key: KeyRef::new(0, b"k"),
                last_fence: FIRST_FENCE,
                last_number: 0,
            },
            oracle: Oracle::new(),
        }
    }

    fn check(&mut self, op: Op) {
        let (mut real, mut expected) = (Vec::new(), Vec::new());
        if let Op::Tick(ms) = op {
            self.now_ms += ms;
        }
        let now = Now::from_millis(self.now_ms);
        while let Some(over) = self.real.registry.take_timed_out(Leaving::at(now.us())) {
            assert_eq!((over.listener, over.rest), (None, Rest::Ended));
        }
        self.oracle.drop_ended(self.now_ms);
        self.real.serve(now, &mut real);
        self.oracle.serve(self.now_ms, &mut expected);
        self.step(op, now, &mut real, &mut expected);
        self.real.serve(now, &mut real);
        self.oracle.serve(self.now_ms, &mut expected);
        real.sort_unstable();
        expected.sort_unstable();
        assert_eq!(real, expected, "{op:?} then {:#?}", self.oracle);
        self.check_state();
    }

    fn step(&mut self, op: Op, now: Now, real: &mut Vec<Event>, expected: &mut Vec<Event>) {
        let name;
        match op {
            Op::Ask(mode, token, ttl, block) => {
                name = [token];
                let ask = Ask {
                    mode,
                    token: Token::new(&name).unwrap(),
                    ttl: Ttl::from_millis(ttl).unwrap(),
                };
                self.real.ask(ask, block, now, real);
                expected.push(self.oracle.ask(mode, token, ttl, block, self.now_ms));
            }
            Op::Release(token) => self.release(token, now, real, expected),
            Op::Renew(token, ttl) => self.renew(token, ttl, now, real, expected),
            Op::Cancel(seat) => {
                let tickets = self.numbers();
                let chosen = match seat {
                    Seat::First => tickets.first(),
                    Seat::Last => tickets.last(),
                    Seat::Nth(n) => tickets.get(n % tickets.len().max(1)),
                };
                if let Some(chosen) = chosen {
                    let now_us = now.us();
                    let removed = self
                        .real
                        .registry
                        .remove_listener(*chosen, Leaving::at(now_us));
                    assert_eq!(client(&removed.unwrap()), *chosen);
                    self.oracle.cancel(*chosen, self.now_ms);
                }
            }
            Op::Tick(_) => {}
            Op::Delete => {
                self.real.replace(&[], now);
                self.oracle.holds.clear();
            }
            Op::Replace(one, other, ttl) => {
                let mode = match one == other {
                    true => Mode::Exclusive,
                    false => Mode::Shared,
                };
                let names = [[one], [other]];
                let asks = names.each_ref().map(|name| Ask {
                    mode,
                    token: Token::new(name).unwrap(),
                    ttl: Ttl::from_millis(ttl).unwrap(),
                });
                self.real.replace(&asks, now);
                self.oracle.holds.clear();
                for token in [one, other] {
                    self.oracle.take(token, mode, self.now_ms + ttl);
                }
            }
        }
    }

    fn release(&mut self, token: u8, now: Now, real: &mut Vec<Event>, expected: &mut Vec<Event>) {
        let name = [token];
        let token = Token::new(&name).unwrap();
        let lock = self.real.lock.as_ref();
        let effect = lock.and_then(|lock| lock.release(token, now));
        let effect = effect.map(|(effect, _)| effect);
        effect
            .into_iter()
            .for_each(|effect| self.real.apply(&effect));
        real.push(Event::Done(effect.is_some()));
        expected.push(Event::Done(self.oracle.owns(name[0])));
        if effect.is_none() {
            let gone = self.real.registry.give_up(&self.real.key, token);
            let gone = gone.iter().filter(|removed| removed.listener.is_some());
            real.extend(gone.map(|removed| Event::GivenUp(client(removed))));
            let gone = self.oracle.give_up(name[0]);
            expected.extend(gone.into_iter().map(Event::GivenUp));
        }
        self.oracle.release(name[0]);
    }

    fn renew(
        &mut self,
        token: u8,
        ttl: u64,
        now: Now,
        real: &mut Vec<Event>,
        expected: &mut Vec<Event>,
    ) {
        let name = [token];
        let (token, ttl) = (Token::new(&name).unwrap(), Ttl::from_millis(ttl).unwrap());
        let lock = self.real.lock.as_ref();
        let effect = lock.and_then(|lock| lock.renew(token, ttl, now));
        effect
            .into_iter()
            .for_each(|effect| self.real.apply(&effect));
        real.push(Event::Done(effect.is_some()));
        let own = self
            .oracle
            .holds
            .iter_mut()
            .find(|hold| hold.token == name[0]);
        let renewed = own.map(|hold| hold.deadline = self.now_ms + ttl.ms());
        expected.push(Event::Done(renewed.is_some()));
    }

    /// The requests that wait, in the order in which they stand.
    fn numbers(&self) -> Vec<u64> {
        let requests = self.oracle.places.iter().flat_map(|place| &place.requests);
        requests.map(|request| request.number).collect()
    }

    fn check_state(&self) {
        let registry = &self.real.registry;
        let queued: Vec<_> = registry
            .waiters(0, b"k")
            .map(|waiter| {
                let client = match waiter.listener {
                    Some(Listener::Client(client)) => Some(*client),
                    _ => None,
                };
                (waiter.token.as_bytes()[0], waiter.mode, client)
            })
            .collect();
        let mut expected = Vec::new();
        for place in &self.oracle.places {
            let requests = place.requests.iter();
            expected.extend(requests.map(|r| (place.token, r.mode, Some(r.number))));
            if place.requests.is_empty() {
                expected.push((place.token, place.keeps.unwrap(), None));
            }
        }
        assert_eq!(queued, expected, "the order of the queue");
        assert_eq!(registry.len(), self.oracle.places.len());
        assert!(registry.is_tight(), "a table keeps what is over");
        let ends = self.oracle.places.iter().filter(|p| p.requests.is_empty());
        let ends = ends.map(|place| place.until * 1_000).min();
        assert_eq!(registry.due().times_out_at_us, ends, "the next grace");
        let holders = self.oracle.holds.len();
        let tolerates = |hold: &NaiveHold| holders <= hold.mode.tolerates() as usize;
        let is_tolerated = self.oracle.holds.iter().all(tolerates);
        assert!(is_tolerated, "too many holders: {:?}", self.oracle.holds);
        assert!(
            !self.oracle.holds.is_empty()
                || expected.iter().all(|(.., c)| c.is_none())
                || self.is_kept(),
            "free while somebody waits"
        );
        self.check_alarm();
        self.check_no_deadlock();
    }

    /// Whether somebody who is absent stands ahead of all who listen.
    fn is_kept(&self) -> bool {
        self.oracle.places[0].requests.is_empty()
    }

    /// Lets the graces end, and everybody release who does not wait, as often as somebody can: all
    /// must have been granted then. An owner that waits releases nothing before it is answered, and
    /// renews. Owners that wait for smaller limits may wait for each other: one of them gives up
    /// then.
    fn check_no_deadlock(&self) {
        let (mut future, mut events) = (self.oracle.clone(), Vec::new());
        let is_kept = self.oracle.places.iter().any(|p| p.requests.is_empty());
        if is_kept {
            future.drop_ended(u64::MAX);
            future.serve(self.now_ms, &mut events);
        }
        while !future.places.is_empty() {
            let waits = |token| future.places.iter().any(|place| place.token == token);
            let free = future.holds.iter().find(|hold| !waits(hold.token));
            let free = free.map(|hold| hold.token);
            match free.or_else(|| future.counted_upgrade()) {
                Some(free) => {
                    future.give_up(free);
                    future.release(free);
                }
                None => panic!("all wait for each other: {:#?}", self.oracle),
            }
            future.serve(self.now_ms, &mut events);
        }
    }

    /// Lets time alone pass for the oracle: the alarm must not be later than the first grant.
    fn check_alarm(&self) {
        if self.numbers().is_empty() {
            return;
        }
        let now = Now::from_millis(self.now_ms);
        let registry = &self.real.registry;
        let alarm = registry.wakes_at(&self.real.key, self.real.lock.as_ref(), now);
        let mut ends: Vec<u64> = self
            .oracle
            .holds
            .iter()
            .map(|hold| hold.deadline + 1)
            .collect();
        ends.sort_unstable();
        for end in ends {
            let (mut future, mut events) = (self.oracle.clone(), Vec::new());
            future.serve(end, &mut events);
            if !events.is_empty() {
                assert!(
                    alarm.is_some_and(|alarm| alarm.ms() < end),
                    "wakes after {alarm:?}, needed at {end}: {:#?}",
                    self.oracle
                );
                return;
            }
        }
        let is_kept = self.oracle.places.iter().any(|p| p.requests.is_empty());
        assert!(is_kept, "nobody is ever granted: {:#?}", self.oracle);
    }
}
