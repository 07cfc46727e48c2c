//! A second judge, which knows nothing of the first: the checker of the crate `todc-utils` decides
//! whether the replies of a real run can be those of one lock that does one thing at a time.
//!
//! It does not see the server's file, only when each request was sent, when its reply came, and what
//! it said. The algorithm is that of Wing and Gong with Lowe's memory: it looks for an order of the
//! operations that the model can follow. Each key has a history of its own.
//!
//! A hold that is left to its deadline ends by an operation of its own, which nobody has sent: it
//! takes place somewhere between the earliest and the latest instant of the deadline.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis_lock::lock::Mode;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::linearizability::WGLChecker;
use todc_utils::specifications::Specification;

use super::sending::PATIENCE;
use crate::harness::{figure, now_us, setting, Kind, Raw, Reply, Server};

on_every_server![replies_of_clients_are_those_of_one_lock];

const CLIENTS: usize = 6;
const KEYS: usize = 3;
/// Of each client. The checker's work grows with the square of a history's length.
const TURNS: usize = 150;
/// The search for an order can be long where there is none.
const LONGEST_SEARCH: Duration = Duration::from_secs(60);
/// A ttl that no run outlasts.
const LONG_MS: u64 = 600_000;
/// How much sooner a deadline can be than by the clock of the test. A server reads its clock once
/// in a turn of its loop, and cuts it to milliseconds.
const EARLY: Duration = Duration::from_millis(50);
/// How much later a command can still find the hold.
const LATE: Duration = Duration::from_millis(50);

/// An operation with its reply.
#[derive(Clone, Debug, PartialEq)]
enum Operation {
    /// With the fence, or null.
    Acquire(u64, Mode, Option<u64>),
    Release(u64, bool),
    Renew(u64, bool),
    Check(u64, Option<u64>),
    /// The deadline of a token's hold.
    Expire(u64),
}

/// The holds of a lock, by token, and the largest fence so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Held {
    holds: BTreeMap<u64, (Mode, u64)>,
    last_fence: u64,
}

struct OneLock;

impl Specification for OneLock {
    type State = Held;
    type Operation = Operation;

    fn init() -> Held {
        Held::default()
    }

    /// Whether the lock can answer so, and what it is afterwards.
    fn apply(operation: &Operation, held: &Held) -> (bool, Held) {
        let mut next = held.clone();
        let fence_of = |token| held.holds.get(token).map(|(_, fence)| *fence);
        let is_right = match operation {
            Operation::Acquire(token, mode, Some(fence)) => {
                let others = held.holds.iter().filter(|(other, _)| *other != token);
                let modes: Vec<_> = others
                    .map(|(_, (other, _))| *other)
                    .chain([*mode])
                    .collect();
                let is_tolerated = |mode: &Mode| modes.len() <= mode.tolerates() as usize;
                next.holds.insert(*token, (*mode, *fence));
                next.last_fence = held.last_fence.max(*fence);
                let is_own = fence_of(token).map_or(*fence > held.last_fence, |own| own == *fence);
                is_own && modes.iter().all(is_tolerated)
            }
            // Readers are refused beside readers where a writer waits, so any other holder will do.
            Operation::Acquire(token, _, None) => held.holds.keys().any(|other| other != token),
            Operation::Release(token, done) => next.holds.remove(token).is_some() == *done,
            Operation::Renew(token, done) => held.holds.contains_key(token) == *done,
            Operation::Check(token, fence) => fence_of(token) == *fence,
            Operation::Expire(token) => {
                next.holds.remove(token);
                true
            }
        };
        (is_right, next)
    }
}

/// When an operation was sent and answered, and which.
type Timed = (Instant, Instant, Operation);

/// Whether one lock, doing one thing at a time, could have answered so.
fn is_linearizable(operations: &[Timed]) -> bool {
    // At one instant a call comes before a reply: that allows more orders, never fewer.
    let mut events = Vec::new();
    for (process, (sent, answered, operation)) in operations.iter().enumerate() {
        events.push((*sent, 0, process, Action::Call(operation.clone())));
        events.push((*answered, 1, process, Action::Response(operation.clone())));
    }
    events.sort_by_key(|(at, order, process, _)| (*at, *order, *process));
    let actions = events
        .into_iter()
        .map(|(_, _, process, action)| (process, action));
    let history = History::from_actions(actions.collect());
    let (send, receive) = channel();
    thread::spawn(move || send.send(WGLChecker::<OneLock>::is_linearizable(history)));
    let verdict = receive.recv_timeout(LONGEST_SEARCH);
    verdict.expect("a verdict in time")
}

fn replies_of_clients_are_those_of_one_lock(kind: Kind) {
    let seed = setting("SOAK_SEED").unwrap_or_else(now_us);
    let server = Server::start(kind);
    let clients: Vec<_> = thread::scope(|scope| {
        let run = |number| Client::new(server.port, seed, number).run();
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || run(number)));
        let clients: Vec<_> = clients.collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    });
    let begin = Instant::now();
    for key in 0..KEYS {
        let of_key = clients.iter().filter(|(other, _)| *other == key);
        let operations: Vec<_> = of_key.map(|(_, timed)| timed.clone()).collect();
        let count = |is: fn(&Operation) -> bool| operations.iter().filter(|(.., o)| is(o)).count();
        assert!(count(|o| matches!(o, Operation::Acquire(.., Some(_)))) > 20);
        assert!(count(|o| matches!(o, Operation::Acquire(.., None))) > 0);
        assert!(count(|o| matches!(o, Operation::Expire(_))) > 0);
        assert!(
            is_linearizable(&operations),
            "{kind:?}: key {key} with SOAK_SEED={seed}"
        );
    }
    let (count, took) = (clients.len(), begin.elapsed());
    figure(
        kind,
        &format!("seed {seed}: {count} operations judged in {took:.1?}"),
    );
}

/// A client that asks for one thing at a time.
struct Client {
    wire: Raw,
    rng: StdRng,
    number: u64,
    tokens: u64,
    done: Vec<(usize, Timed)>,
}

impl Client {
    fn new(port: u16, seed: u64, number: usize) -> Self {
        let number = number as u64;
        Self {
            wire: Raw::open(port).unwrap(),
            rng: StdRng::seed_from_u64(seed ^ ((number + 1) << 32)),
            number,
            tokens: 0,
            done: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<(usize, Timed)> {
        for _ in 0..TURNS {
            self.take_and_give_up();
        }
        self.done
    }

    fn take_and_give_up(&mut self) {
        self.tokens += 1;
        let (key, token) = (
            self.rng.random_range(0..KEYS),
            self.number << 32 | self.tokens,
        );
        let forgets = self.rng.random_bool(0.1);
        let ttl_ms = if forgets {
            self.rng.random_range(1..30)
        } else {
            LONG_MS
        };
        let mode = match self.rng.random_range(0..4) {
            0 => Mode::Shared,
            1 => Mode::of_limit(2).unwrap(),
            _ => Mode::Exclusive,
        };
        let (sent, answered, fence) = self.acquire(key, token, mode, ttl_ms);
        if fence.is_none() {
            return;
        }
        if forgets {
            let ttl = Duration::from_millis(ttl_ms);
            let (from, until) = (sent + ttl.saturating_sub(EARLY), answered + ttl + LATE);
            self.done
                .push((key, (from.max(sent), until, Operation::Expire(token))));
            if self.rng.random_bool(0.5) {
                thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            self.check(key, token);
            self.release(key, token);
            return;
        }
        for _ in 0..self.rng.random_range(0..3) {
            match self.rng.random_range(0..3) {
                0 => self.check(key, token),
                1 => self.renew(key, token),
                _ => drop(self.acquire(key, token, mode, LONG_MS)),
            }
        }
        thread::sleep(Duration::from_micros(self.rng.random_range(0..600)));
        self.release(key, token);
        if self.rng.random_bool(0.1) {
            self.release(key, token);
            self.renew(key, token);
        }
    }

    fn acquire(
        &mut self,
        key: usize,
        token: u64,
        mode: Mode,
        ttl_ms: u64,
    ) -> (Instant, Instant, Option<u64>) {
        let name = if mode == Mode::Shared {
            "RWLOCK.RLOCK"
        } else {
            "LOCK.ACQUIRE"
        };
        let mut line = format!("{name} {} {token} {ttl_ms}", name_of(key));
        if let Some(limit) = mode.limit() {
            line += &format!(" LIMIT {}", limit.get());
        }
        if self.rng.random_bool(0.5) {
            line += &format!(" BLOCK {}", self.rng.random_range(1..20));
        }
        let (sent, reply, answered) = self.ask(&line);
        let fence = fence(reply);
        self.done.push((
            key,
            (sent, answered, Operation::Acquire(token, mode, fence)),
        ));
        (sent, answered, fence)
    }

    fn release(&mut self, key: usize, token: u64) {
        let (sent, reply, answered) = self.ask(&format!("LOCK.RELEASE {} {token}", name_of(key)));
        let operation = Operation::Release(token, reply.as_int() == 1);
        self.done.push((key, (sent, answered, operation)));
    }

    fn renew(&mut self, key: usize, token: u64) {
        let (sent, reply, answered) =
            self.ask(&format!("LOCK.RENEW {} {token} {LONG_MS}", name_of(key)));
        let operation = Operation::Renew(token, reply.as_int() == 1);
        self.done.push((key, (sent, answered, operation)));
    }

    fn check(&mut self, key: usize, token: u64) {
        let (sent, reply, answered) = self.ask(&format!("LOCK.CHECK {} {token}", name_of(key)));
        self.done
            .push((key, (sent, answered, Operation::Check(token, fence(reply)))));
    }

    fn ask(&mut self, line: &str) -> (Instant, Reply, Instant) {
        let words: Vec<_> = line.split(' ').collect();
        let sent = Instant::now();
        self.wire.send_together(&[&words]).unwrap();
        let reply = self.wire.reply(PATIENCE).unwrap();
        (sent, reply, Instant::now())
    }
}

fn name_of(key: usize) -> String {
    format!("lock:{key}")
}

fn fence(reply: Reply) -> Option<u64> {
    match reply {
        Reply::Nil => None,
        Reply::Int(fence) => Some(fence.try_into().unwrap()),
        other => panic!("{other:?}"),
    }
}

/// A history by hand: operations one after the other, and then others at the same time.
fn judged(in_turn: &[&Operation], at_once: &[&Operation]) -> bool {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let operations = in_turn.iter().chain(at_once).zip(0..);
    let timed = operations.map(|(operation, number)| {
        let turn = 2 * number.min(in_turn.len() as u64);
        (at(turn), at(turn + 1), (*operation).clone())
    });
    is_linearizable(&timed.collect::<Vec<_>>())
}

const A: u64 = 1;
const B: u64 = 2;

fn grant(token: u64, mode: Mode, fence: u64) -> Operation {
    Operation::Acquire(token, mode, Some(fence))
}

#[test]
fn grants_that_no_lock_makes_are_refused() {
    let [a, b] = [A, B].map(|token| grant(token, Mode::Exclusive, token));
    let released = Operation::Release(A, true);
    // Two exclusive ones at once.
    assert!(judged(&[&a], &[&released, &b]));
    assert!(!judged(&[&a, &b, &released], &[]));
    let shared = [A, B].map(|token| grant(token, Mode::Shared, token));
    assert!(judged(&[&shared[0], &shared[1]], &[]));
    // More than their limit.
    let permit = |token, limit| grant(token, Mode::of_limit(limit).unwrap(), token);
    let permits = [permit(A, 2), permit(B, 2), permit(3, 3)];
    assert!(judged(&[&permits[0], &permits[1]], &[]));
    assert!(!judged(&[&permits[0], &permits[1], &permits[2]], &[]));
    // A fence that falls, and one that changes.
    assert!(judged(&[&a, &released, &b], &[]));
    let falls = grant(B, Mode::Exclusive, 1);
    assert!(!judged(&[&a, &released, &falls], &[]));
    assert!(judged(&[&a, &a], &[]));
    let changes = grant(A, Mode::Exclusive, 2);
    assert!(!judged(&[&a, &changes], &[]));
    // A null where the lock is free.
    let null = Operation::Acquire(B, Mode::Exclusive, None);
    assert!(!judged(&[&null], &[]));
    assert!(judged(&[&a, &null], &[]));
}

#[test]
fn a_reply_of_one_who_holds_nothing_is_refused() {
    let held = grant(A, Mode::Exclusive, 1);
    let expired = Operation::Expire(A);
    for (done, nothing) in [
        (Operation::Release(A, true), Operation::Release(A, false)),
        (Operation::Renew(A, true), Operation::Renew(A, false)),
        (Operation::Check(A, Some(1)), Operation::Check(A, None)),
    ] {
        assert!(!judged(&[&done], &[]), "{done:?}");
        assert!(judged(&[&nothing], &[]), "{nothing:?}");
        assert!(judged(&[&held, &done], &[]), "{done:?}");
        assert!(!judged(&[&held, &nothing], &[]), "{nothing:?}");
        assert!(judged(&[&held], &[&expired, &nothing]), "{nothing:?}");
        assert!(judged(&[&held], &[&expired, &done]), "{done:?}");
        assert!(!judged(&[&held, &expired, &done], &[]), "{done:?}");
    }
}
