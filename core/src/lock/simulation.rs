//! This layer against a naive oracle: all short histories, and long random ones.
//!
//! The oracle is a list of holds, and every step iterates over all of them. A replica runs beside
//! the lock that decides. It gets only the bytes of the effects and has no clock. It must be equal
//! to the lock after every step.

// Long because: the lock, the oracle and the checks after each step are read together.

mod properties;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::codec::{decode, encode_effect, encode_state, Record};
use super::effort;
use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire(Mode, u8, u64),
    Release(u8),
    Renew(u8, u64),
    /// An EXPIRE by a client sets the key's end to this many milliseconds after now.
    Expire(u64),
    Tick(u64),
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Fence(u64),
    Refused(Refusal),
    Done(bool),
}

/// A hold of the oracle. The oracle keeps holds that are over until a step looks at them.
#[derive(Clone, Copy, Debug)]
struct Naive {
    token: u8,
    mode: Mode,
    fence: u64,
    deadline: u64,
    since: u64,
}

/// One history in progress.
#[derive(Clone)]
struct World {
    now_ms: u64,
    lock: Option<Lock>,
    replica: Option<Lock>,
    last_fence: u64,
    /// The key's own end, if a client has set it.
    key_end: Option<u64>,
    oracle: Vec<Naive>,
}

const START_MS: u64 = 1;
/// Above every instant in a history, so that every fence is `last + 1` and the oracle can compute
/// it.
const FIRST_FENCE: u64 = 1 << 50;

impl World {
    fn new() -> Self {
        Self {
            now_ms: START_MS,
            lock: None,
            replica: None,
            last_fence: FIRST_FENCE,
            key_end: None,
            oracle: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now::from_millis(self.now_ms)
    }

    /// Carries out a step as the server does: decides, shortens if need be, applies and replicates.
    fn step(&mut self, op: Op) -> Answer {
        let name;
        let (effect, answer) = match op {
            Op::Acquire(mode, t, ttl) => {
                name = [t];
                let mut fences = FenceClock::default();
                fences.observe(Fence::new(self.last_fence).unwrap());
                let ask = Ask {
                    mode,
                    token: Token::new(&name).unwrap(),
                    ttl: Ttl::from_millis(ttl).unwrap(),
                };
                let waiting = Waiting::default();
                match Lock::acquire(self.lock.as_ref(), ask, self.now(), waiting, &mut fences) {
                    Ok(grant) => {
                        self.last_fence = fences.last().unwrap().get();
                        let effect = grant.effect(ask.token);
                        (Some(effect), Answer::Fence(grant.hold.fence.get()))
                    }
                    Err(refusal) => (None, Answer::Refused(refusal)),
                }
            }
            Op::Release(t) => {
                name = [t];
                let token = Token::new(&name).unwrap();
                let effect = self
                    .lock
                    .as_ref()
                    .and_then(|l| l.release(token, self.now()))
                    .map(|(effect, _)| effect);
                (effect, Answer::Done(effect.is_some()))
            }
            Op::Renew(t, ttl) => {
                name = [t];
                let (token, ttl) = (Token::new(&name).unwrap(), Ttl::from_millis(ttl).unwrap());
                let effect = self
                    .lock
                    .as_ref()
                    .and_then(|l| l.renew(token, ttl, self.now()));
                (effect, Answer::Done(effect.is_some()))
            }
            Op::Expire(ms) => {
                self.key_end = self.lock.as_ref().map(|_| self.now_ms + ms);
                (None, Answer::Done(self.key_end.is_some()))
            }
            Op::Tick(ms) => {
                self.now_ms += ms;
                if self.key_end.is_some_and(|end| self.now_ms > end) {
                    // The server deletes the key, on the primary and on the replica.
                    (self.lock, self.replica, self.key_end) = (None, None, None);
                }
                (None, Answer::Done(true))
            }
        };
        if let Some(effect) = effect {
            let cap = self.key_end.take().and_then(|end| {
                let lock = self.lock.as_ref()?;
                lock.cap(Deadline::from_millis(end).unwrap())
            });
            if let Some(cap) = cap {
                self.carry_out(&cap);
            }
            self.carry_out(&effect);
        }
        answer
    }

    fn carry_out(&mut self, effect: &Effect<'_>) {
        apply(&mut self.lock, effect);
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        let Ok(Record::Effect(received)) = decode(&bytes) else {
            panic!("{effect:?} does not come back")
        };
        assert_eq!(received, *effect);
        apply(&mut self.replica, &received);
    }

    /// The expected answer, found by iterating over all holds. `key_end` is the key's own end
    /// before the step.
    fn oracle_step(&mut self, op: Op, key_end: Option<u64>) -> Answer {
        let now = self.now_ms;
        let changes = |holds: &mut Vec<Naive>| cap_naively(holds, key_end);
        let live = |holds: &[Naive]| live_at(holds, now);
        match op {
            Op::Acquire(mode, token, ttl) => self.oracle_acquire((mode, token, ttl), key_end),
            Op::Release(token) => {
                let held = live(&self.oracle).iter().any(|h| h.token == token);
                if held {
                    changes(&mut self.oracle);
                    self.oracle.retain(|h| h.token != token);
                }
                Answer::Done(held)
            }
            Op::Renew(token, ttl) => {
                let mut holds = live(&self.oracle);
                let held = holds.iter().any(|h| h.token == token);
                if held {
                    changes(&mut holds);
                    let own = holds.iter_mut().find(|h| h.token == token).unwrap();
                    own.deadline = now + ttl;
                    self.oracle = holds;
                }
                Answer::Done(held)
            }
            Op::Expire(_) => Answer::Done(!live(&self.oracle).is_empty()),
            Op::Tick(_) => {
                if key_end.is_some_and(|end| now > end) {
                    self.oracle.clear();
                }
                Answer::Done(true)
            }
        }
    }

    fn oracle_acquire(
        &mut self,
        (mode, token, ttl): (Mode, u8, u64),
        key_end: Option<u64>,
    ) -> Answer {
        let now = self.now_ms;
        let mut holds = live_at(&self.oracle, now);
        let (own, others): (Vec<Naive>, Vec<Naive>) = holds.iter().partition(|h| h.token == token);
        let holders = others.len() as u32 + 1;
        let is_wider = |own: &Naive| mode.tolerates() >= own.mode.tolerates();
        // Nobody who holds already minds a token that stays.
        let is_tolerated = match own.first() {
            Some(own) => is_wider(own) || holders <= mode.tolerates(),
            None => {
                let mut modes = others.iter().map(|h| h.mode).chain([mode]);
                modes.all(|mode| holders <= mode.tolerates())
            }
        };
        if !is_tolerated {
            return Answer::Refused(match own[..] {
                [] => Refusal::Busy,
                _ => Refusal::BusyUpgrade,
            });
        }
        cap_naively(&mut holds, key_end);
        let (fence, since) = match own[..] {
            [] => (self.last_fence, now),
            [hold, ..] => (hold.fence, hold.since),
        };
        holds.retain(|h| h.token != token);
        holds.push(Naive {
            token,
            mode,
            fence,
            deadline: now + ttl,
            since,
        });
        self.oracle = holds;
        Answer::Fence(fence)
    }

    /// Carries out a step on both sides and checks everything that must be true after it.
    fn check(&mut self, op: Op) {
        let key_end = self.key_end;
        let given = self.step(op);
        let expected = self.oracle_step(op, key_end);
        if !matches!(op, Op::Expire(_)) {
            assert_eq!(given, expected, "{op:?} in {self:#?}");
        }
        assert_eq!(self.lock, self.replica, "the replica differs after {op:?}");
        self.check_state();
    }

    fn check_state(&self) {
        let now = self.now();
        let end = |deadline: u64| self.key_end.map_or(deadline, |end| end.min(deadline));
        let mut expected: Vec<_> = self
            .oracle
            .iter()
            .filter(|h| self.now_ms <= h.deadline)
            .map(|h| (h.fence, h.token, h.mode, end(h.deadline), h.since))
            .collect();
        expected.sort_unstable_by_key(|h| h.0);
        let mut found = Vec::new();
        if let Some(lock) = &self.lock {
            for (token, mode, hold) in lock.holds() {
                if !hold.deadline.is_over(self.now_ms) {
                    let deadline = end(hold.deadline.ms());
                    let token = token.as_token().as_bytes()[0];
                    found.push((hold.fence.get(), token, mode, deadline, hold.since.ms()));
                }
            }
            assert_eq!(lock.is_free(now), found.is_empty());
            assert!(!lock.is_empty());
            let latest = lock.holders().iter().map(|(_, hold)| hold.deadline).max();
            assert_eq!(lock.latest_deadline(), latest);
            for (token, _) in lock.holders() {
                let token = token.as_token();
                let others = lock.holders().into_iter();
                let others = others.filter(|(other, _)| other.as_token() != token);
                let latest = others.map(|(_, hold)| hold.deadline).max();
                assert_eq!(lock.latest_deadline_of_others(token), latest);
            }
            assert_eq!(decode(&encode_state(lock)), Ok(Record::State(lock.clone())));
        }
        assert_eq!(found, expected, "{self:#?}");
        let is_tolerated = found
            .iter()
            .all(|h| found.len() <= h.2.tolerates() as usize);
        assert!(is_tolerated, "too many holders: {found:?}");
        let occupancy = self.lock.as_ref().map(|lock| lock.occupancy(now));
        let occupancy = occupancy.unwrap_or(Occupancy::NONE);
        let narrowest = found.iter().map(|h| h.2.tolerates()).min();
        assert_eq!(occupancy.holders, found.len());
        assert_eq!(occupancy.tolerated, narrowest.unwrap_or(Mode::ANY));
        assert!(found.iter().all(|h| h.0 <= self.last_fence));
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now_ms", &self.now_ms)
            .field("lock", &self.lock)
            .field("oracle", &self.oracle)
            .finish_non_exhaustive()
    }
}

fn apply(slot: &mut Option<Lock>, effect: &Effect<'_>) {
    match slot {
        None => *slot = effect.apply_to_absent(),
        Some(lock) => {
            if effect.apply_to(lock) == Fate::Free {
                *slot = None;
            }
        }
    }
}

/// Plays all histories of so many of these steps.
fn enumerate(ops: &[Op], depth: u32) {
    let depth = effort::depth(depth);
    let histories = all_histories(&World::new(), ops, depth);
    assert_eq!(histories, (ops.len() as u64).pow(depth));
    println!("{histories} histories of {depth} steps");
}

/// Runs every history of `depth` steps out of `ops` and returns their number. Histories share their
/// common beginnings.
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

fn alphabet(tokens: &[u8], ttls: &[u64]) -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::Expire(0)];
    for &token in tokens {
        ops.push(Op::Release(token));
        for &ttl in ttls {
            ops.push(Op::Acquire(Mode::Exclusive, token, ttl));
            ops.push(Op::Acquire(Mode::Shared, token, ttl));
            ops.push(Op::Renew(token, ttl));
        }
    }
    ops
}

fn live_at(holds: &[Naive], now_ms: u64) -> Vec<Naive> {
    let live = holds.iter().filter(|hold| now_ms <= hold.deadline);
    live.copied().collect()
}

fn cap_naively(holds: &mut [Naive], key_end: Option<u64>) {
    for hold in holds {
        hold.deadline = hold.deadline.min(key_end.unwrap_or(u64::MAX));
    }
}

#[test]
fn all_histories_of_five_steps_by_three_tokens_with_two_ttls() {
    let ops = alphabet(b"abc", &[1, 2]);
    enumerate(&ops, 5);
}

/// Permits of two sizes beside the exclusive and the shared hold.
#[test]
fn all_histories_of_five_steps_with_limits() {
    let mut ops = alphabet(b"abc", &[2]);
    for token in *b"abc" {
        for limit in [2, 3] {
            let mode = Mode::of_limit(limit).unwrap();
            ops.push(Op::Acquire(mode, token, u64::from(limit)));
        }
    }
    enumerate(&ops, 5);
}

#[test]
fn all_histories_of_seven_steps_by_two_tokens() {
    let ops = alphabet(b"ab", &[1]);
    enumerate(&ops, 7);
}

#[test]
fn long_random_histories() {
    const RUNS: u64 = 2_000;
    const STEPS: usize = 1_000;
    for seed in 0..effort::runs(RUNS) {
        let mut rng = StdRng::seed_from_u64(seed);
        // Few tokens conflict all the time. Many tokens give locks with many readers.
        let tokens: u8 = rng.random_range(2..40);
        let longest = rng.random_range(1..200);
        let mut world = World::new();
        for _ in 0..STEPS {
            let token = rng.random_range(0..tokens);
            let ttl = rng.random_range(1..=longest);
            let limit = rng.random_range(2..12);
            world.check(match rng.random_range(0..20) {
                0..=2 => Op::Acquire(Mode::Exclusive, token, ttl),
                3..=6 if seed % 2 == 1 => {
                    let mode = Mode::of_limit(limit).unwrap();
                    Op::Acquire(mode, token, ttl)
                }
                3..=9 => Op::Acquire(Mode::Shared, token, ttl),
                10..=13 => Op::Release(token),
                14..=15 => Op::Renew(token, ttl),
                16 => Op::Expire(rng.random_range(0..=longest)),
                _ => Op::Tick(rng.random_range(0..=longest / 4 + 1)),
            });
        }
    }
    println!("{} histories of {STEPS} steps", effort::runs(RUNS));
}

#[test]
fn a_second_upgrade_is_a_deadlock_only_for_another_token() {
    let mut world = World::new();
    world.check(Op::Acquire(Mode::Shared, b'a', 9));
    world.check(Op::Acquire(Mode::Shared, b'b', 9));
    let ask = |token| Ask {
        mode: Mode::Exclusive,
        token: Token::new(token).unwrap(),
        ttl: Ttl::from_millis(5).unwrap(),
    };
    let decide = |token, other_upgrades| {
        let lock = world.lock.as_ref();
        let waiting = Waiting {
            any: true,
            other_upgrades,
        };
        Lock::acquire(
            lock,
            ask(token),
            world.now(),
            waiting,
            &mut FenceClock::default(),
        )
        .map(|_| ())
    };
    assert_eq!(decide(b"a", false), Err(Refusal::BusyUpgrade));
    assert_eq!(decide(b"b", true), Err(Refusal::Deadlock));
    assert_eq!(decide(b"c", true), Err(Refusal::Busy));
}

#[test]
fn a_new_request_passes_no_waiter() {
    let mut world = World::new();
    world.check(Op::Acquire(Mode::Shared, b'a', 9));
    let waiting = Waiting {
        any: true,
        other_upgrades: false,
    };
    let decide = |lock: Option<&Lock>, token: &[u8]| {
        let ask = Ask {
            mode: Mode::Shared,
            token: Token::new(token).unwrap(),
            ttl: Ttl::from_millis(5).unwrap(),
        };
        Lock::acquire(lock, ask, world.now(), waiting, &mut FenceClock::default()).map(|_| ())
    };
    let lock = world.lock.as_ref();
    assert_eq!(
        decide(lock, b"b"),
        Err(Refusal::Busy),
        "a reader beside a reader"
    );
    assert_eq!(
        decide(None, b"b"),
        Err(Refusal::Busy),
        "a lock about to be handed on"
    );
    assert_eq!(decide(lock, b"a"), Ok(()), "the holder itself");
}

#[test]
fn the_estimate_of_memory_grows_with_the_readers() {
    let mut world = World::new();
    world.step(Op::Acquire(Mode::Shared, 0, 9));
    let one = world.lock.as_ref().unwrap().memory_bytes();
    for token in 1..=99 {
        world.step(Op::Acquire(Mode::Shared, token, 9));
    }
    let hundred = world.lock.as_ref().unwrap().memory_bytes();
    assert!(hundred > one + 99 * 48, "{one} then {hundred}");
}
