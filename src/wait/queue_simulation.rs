//! The places of one key and the lock together against a naive oracle: all short histories, and long random ones.
//!
//! The oracle keeps holds and places in two lists and walks them from end to end. Both sides are served
//! after every step, as the server's shell does. They must grant and refuse the same requests; a new hold's
//! fence tells its rank among the grants. After every step it is also shown that nobody waits for ever,
//! even where no hold ends by its deadline.

mod oracle;

use std::hash::{BuildHasherDefault, DefaultHasher};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

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
    /// Another lock takes the place of the one under the key, as by RENAME. Two tokens share it, or one
    /// token has it alone.
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
                self.registry.resume(&self.key, ask.token);
                return events.push(Event::Answered(Some(fence)));
            }
            Err(Refusal::Deadlock) => {
                self.registry.resume(&self.key, ask.token);
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
            refusal,
            now,
            now_us: now.us(),
        };
        let entered = self.registry.enter(&self.key, new);
        let has_entered = matches!(entered, Entered::Waits { .. });
        assert_eq!(has_entered, waits);
        events.push(match waits {
            true => Event::Waits(self.last_number),
            false => Event::Answered(None),
        });
    }

    fn acquire(&mut self, ask: Ask<'_>, now: Now) -> Result<u64, Refusal> {
        let mut fences = self.fences();
        let ahead = self.registry.ahead_of(&self.key, ask.token, ask.mode);
        let lock = self.lock.as_ref();
        let grant = Lock::acquire(lock, ask, now, ahead.as_waiting(), &mut fences)?;
        self.last_fence = fences.last().unwrap().get();
        self.apply(&grant.effect);
        Ok(grant.fence.get())
    }

    fn fences(&self) -> FenceClock {
        let mut fences = FenceClock::new();
        fences.observe(Fence::new(self.last_fence).unwrap());
        fences
    }

    fn apply(&mut self, effect: &Effect<'_>) {
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
                    let fence = granted.hold.fence.get();
                    self.last_fence = self.last_fence.max(fence);
                    self.apply(&granted.effect());
                    events.push(Event::Granted(client(&granted.removed), fence));
                    self.registry
                        .deliveries
                        .delivered(&granted.grant().unwrap());
                }
                Some(Step::Refused(removed, refusal)) => {
                    assert_eq!(refusal, Refusal::Deadlock);
                    events.push(Event::Refused(client(&removed)));
                }
                Some(Step::Offered(offer)) => panic!("{offer:?}"),
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
            self.apply(&grant.effect);
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
        for over in self.real.registry.take_timed_out(now.us()) {
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
            Op::Release(token) => {
                name = [token];
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
            Op::Renew(token, ttl) => {
                name = [token];
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
            Op::Cancel(seat) => {
                let tickets = self.numbers();
                let chosen = match seat {
                    Seat::First => tickets.first(),
                    Seat::Last => tickets.last(),
                    Seat::Nth(n) => tickets.get(n % tickets.len().max(1)),
                };
                if let Some(chosen) = chosen {
                    let now_us = now.us();
                    let removed = self.real.registry.remove_listener(*chosen, now_us);
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
        assert_eq!(registry.counts(), registry.counts_of(0, b"k"));
        assert!(registry.is_tight(), "a table keeps what is over");
        let ends = self.oracle.places.iter().filter(|p| p.requests.is_empty());
        let ends = ends.map(|place| place.until * 1_000).min();
        assert_eq!(registry.due().times_out_at_us, ends, "the next grace");
        let exclusive = |hold: &NaiveHold| hold.mode == Mode::Exclusive;
        let alone = !self.oracle.holds.iter().any(exclusive) || self.oracle.holds.len() == 1;
        assert!(alone, "two holders: {:?}", self.oracle.holds);
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

    /// Lets the graces end, and everybody release who does not wait, as often as somebody can: all must have been granted then.
    /// An owner that waits releases nothing before it is answered, and renews.
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
            let Some(free) = free.map(|hold| hold.token) else {
                panic!("all wait for each other: {:#?}", self.oracle);
            };
            future.release(free);
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

fn all_histories(world: &World, ops: &[Op], depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    ops.iter()
        .map(|op| {
            let mut next = world.clone();
            next.check(*op);
            all_histories(&next, ops, depth - 1)
        })
        .sum()
}

fn alphabet(tokens: &[u8]) -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::Cancel(Seat::First), Op::Cancel(Seat::Last)];
    ops.push(Op::Ask(Mode::Shared, tokens[0], 2, Block::No));
    for &token in tokens {
        ops.push(Op::Ask(Mode::Exclusive, token, 2, Block::Yes));
        ops.push(Op::Ask(Mode::Shared, token, 1, Block::Yes));
        ops.push(Op::Release(token));
    }
    ops
}

/// Places that are kept, taken up again by other words, and given up.
fn kept_places() -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::Cancel(Seat::First), Op::Cancel(Seat::Last)];
    for token in *b"abc" {
        ops.push(Op::Ask(Mode::Shared, token, 3, Block::NoKeep));
        ops.push(Op::Release(token));
    }
    ops.push(Op::Ask(Mode::Exclusive, b'a', 3, Block::Keep));
    ops.push(Op::Ask(Mode::Exclusive, b'b', 3, Block::NoKeep));
    ops.push(Op::Ask(Mode::Exclusive, b'b', 3, Block::Yes));
    ops.push(Op::Ask(Mode::Shared, b'c', 3, Block::Yes));
    ops
}

/// Conversions of those who are absent, and locks that are replaced under them.
fn kept_upgrades() -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::Cancel(Seat::First), Op::Release(b'a')];
    for token in *b"ab" {
        ops.push(Op::Ask(Mode::Exclusive, token, 4, Block::Keep));
        ops.push(Op::Ask(Mode::Exclusive, token, 4, Block::NoKeep));
        ops.push(Op::Ask(Mode::Shared, token, 4, Block::No));
    }
    ops.push(Op::Ask(Mode::Shared, b'c', 2, Block::Yes));
    ops.push(Op::Replace(b'a', b'b', 3));
    ops.push(Op::Replace(b'b', b'c', 3));
    ops.push(Op::Replace(b'b', b'b', 3));
    ops
}

#[test]
fn all_histories_of_six_steps_with_kept_places() {
    let histories = all_histories(&World::new(), &kept_places(), 6);
    assert_eq!(histories, 13u64.pow(6));
    println!("{histories} histories of 6 steps");
}

#[test]
fn all_histories_of_six_steps_with_kept_upgrades() {
    let histories = all_histories(&World::new(), &kept_upgrades(), 6);
    assert_eq!(histories, 13u64.pow(6));
    println!("{histories} histories of 6 steps");
}

/// Requests of one token in both modes, waiters that give up in the middle, and locks that are replaced.
fn upgrades() -> Vec<Op> {
    let mut ops = vec![
        Op::Cancel(Seat::First),
        Op::Cancel(Seat::Nth(1)),
        Op::Release(b'a'),
        Op::Tick(2),
    ];
    for token in *b"abc" {
        ops.push(Op::Ask(Mode::Exclusive, token, 9, Block::Yes));
        ops.push(Op::Ask(Mode::Shared, token, 1, Block::Yes));
    }
    ops.push(Op::Replace(b'a', b'b', 2));
    ops.push(Op::Replace(b'b', b'c', 3));
    ops.push(Op::Replace(b'b', b'b', 2));
    ops
}

#[test]
fn all_histories_of_six_steps_with_upgrades_and_replacements() {
    let histories = all_histories(&World::new(), &upgrades(), 6);
    assert_eq!(histories, 13u64.pow(6));
    println!("{histories} histories of 6 steps");
}

#[test]
fn all_histories_of_six_steps_by_three_tokens() {
    let histories = all_histories(&World::new(), &alphabet(b"abc"), 6);
    assert_eq!(histories, 13u64.pow(6));
    println!("{histories} histories of 6 steps");
}

#[test]
fn all_histories_of_seven_steps_by_two_tokens() {
    let histories = all_histories(&World::new(), &alphabet(b"ab"), 7);
    assert_eq!(histories, 10u64.pow(7));
    println!("{histories} histories of 7 steps");
}

#[test]
fn long_random_histories() {
    const RUNS: u64 = 500;
    const STEPS: usize = 1_000;
    for seed in 0..RUNS {
        let mut rng = StdRng::seed_from_u64(seed);
        let tokens: u8 = rng.random_range(2..20);
        let longest = rng.random_range(1..60);
        let mut world = World::new();
        for _ in 0..STEPS {
            let token = rng.random_range(0..tokens);
            let ttl = rng.random_range(1..=longest);
            let mode = match rng.random_range(0..3) {
                0 => Mode::Exclusive,
                _ => Mode::Shared,
            };
            let block = match rng.random_range(0..10) {
                0 => Block::No,
                1 => Block::NoKeep,
                2..=4 => Block::Keep,
                _ => Block::Yes,
            };
            let other = rng.random_range(0..tokens);
            world.check(match rng.random_range(0..20) {
                0..=7 => Op::Ask(mode, token, ttl, block),
                8..=12 => Op::Release(token),
                13 => Op::Renew(token, ttl),
                14..=15 => Op::Cancel(Seat::Nth(rng.random_range(0..50))),
                16 if rng.random_bool(0.5) => Op::Delete,
                16 => Op::Replace(token, other, ttl),
                _ => Op::Tick(rng.random_range(0..=longest / 3 + 1)),
            });
        }
    }
    println!("{RUNS} histories of {STEPS} steps");
}

#[test]
fn many_requests_of_one_token_in_both_modes_are_no_scan() {
    // A scan of the writers for each of the readers would be 10^10 steps.
    const EACH: u64 = 100_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    let ask = |mode, token| Ask {
        mode,
        token: Token::new(token).unwrap(),
        ttl: Ttl::from_millis(1).unwrap(),
    };
    real.ask(ask(Mode::Shared, b"r"), Block::Yes, now, &mut events);
    real.ask(ask(Mode::Exclusive, b"w"), Block::Yes, now, &mut events);
    real.ask(ask(Mode::Shared, b"x"), Block::Yes, now, &mut events);
    for mode in [Mode::Exclusive, Mode::Shared] {
        for _ in 0..EACH {
            real.ask(ask(mode, b"x"), Block::Yes, now, &mut events);
        }
    }
    assert!(real.registry.remove_listener(1, 0).is_some());
    events.clear();
    real.serve(now, &mut events);
    assert_eq!(events.len() as u64, 1 + EACH);
    assert_eq!(real.registry.waiters(0, b"k").count() as u64, EACH);
    let other = Token::new(b"y").unwrap();
    let ahead = real.registry.ahead_of(&real.key, other, Mode::Shared);
    assert!(ahead.as_waiting().upgrading.is_some());
}

#[test]
fn to_give_up_in_the_middle_of_a_long_queue_is_no_scan() {
    // A scan for each of these would be 10^10 steps, and this test would not end.
    const WAITERS: u64 = 200_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    let ttl = Ttl::from_millis(1).unwrap();
    for n in 0..=WAITERS {
        let mode = Mode::Exclusive;
        let name = n.to_le_bytes();
        let token = Token::new(&name).unwrap();
        real.ask(Ask { mode, token, ttl }, Block::Yes, now, &mut events);
    }
    for n in 0..WAITERS {
        let from_the_middle = (WAITERS / 2 + n) % WAITERS;
        let removed = real.registry.remove_listener(1 + from_the_middle, 0);
        assert!(removed.is_some());
    }
    assert!(real.registry.is_empty());
}

#[test]
fn a_long_run_of_absent_readers_at_the_head_is_no_scan() {
    // A scan of the absent ones at each of these steps would be 10^10 steps.
    const EACH: u64 = 100_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    fn ask(mode: Mode, token: Token<'_>) -> Ask<'_> {
        let ttl = Ttl::from_millis(1_000).unwrap();
        Ask { mode, token, ttl }
    }
    let writer = Token::new(b"w").unwrap();
    real.ask(ask(Mode::Exclusive, writer), Block::Yes, now, &mut events);
    for (n, block) in (0..EACH)
        .map(|n| (n, Block::NoKeep))
        .chain((EACH..2 * EACH).map(|n| (n, Block::Yes)))
    {
        let name = n.to_le_bytes();
        let token = Token::new(&name).unwrap();
        real.ask(ask(Mode::Shared, token), block, now, &mut events);
    }
    real.lock = None;
    events.clear();
    // Those who listen behind them are readers, too, and enter.
    real.serve(now, &mut events);
    assert_eq!(events.len() as u64, EACH);
    // Each of the absent ones asks again, the last one first.
    for n in (0..EACH).rev() {
        let name = n.to_le_bytes();
        let token = Token::new(&name).unwrap();
        real.ask(ask(Mode::Shared, token), Block::No, now, &mut events);
        real.serve(now, &mut events);
    }
    assert_eq!(events.len() as u64, 2 * EACH);
    assert!(real.registry.is_empty());
}
