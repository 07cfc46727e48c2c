//! The histories of one key. All is settled after each step: the timer has run, and replies have
//! got to their clients. So a short history goes far in the queue.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::drivers::{counted, keep, play_random};
use super::enumerate::enumerate_from;
use super::*;
use crate::lock::{effort, Ask, Ttl};
use Limits::{Forever, NoWait};
use Mode::{Exclusive, Shared};

pub(super) const K: Place = at(0, 0);

/// For how long a place is kept.
pub(super) const GRACE: u32 = 2;

impl World {
    /// A world in which all is settled after each step.
    pub(super) fn of_one_key() -> Self {
        Self {
            settles: true,
            ..Self::new(true)
        }
    }

    pub(super) fn deliver_all(&mut self) {
        while !self.real.memory.in_flight.borrow().is_empty() {
            self.end_delivery(0, true);
        }
        self.real.settle();
    }

    pub(super) fn restore(&mut self, at: Place, tokens: [u8; 2], ttl: u64) {
        let mode = match tokens[0] == tokens[1] {
            true => Exclusive,
            false => Shared,
        };
        let names = tokens.map(|token| [token]);
        let asks = names.each_ref().map(|name| Ask {
            mode,
            token: Token::new(name).unwrap(),
            ttl: Ttl::from_millis(ttl).unwrap(),
        });
        self.real.look_up(at);
        let fences = self.real.restore(at, &asks);
        self.oracle.clear(at);
        for (token, fence) in tokens.into_iter().zip(fences) {
            let id = self.oracle.comes(at, token, mode, ttl, &self.scene);
            self.fences.insert(id, fence);
            self.last_fence = self.last_fence.max(fence);
        }
    }
}

fn waits(mode: Mode, token: u8, ttl: u64) -> Op {
    Op::Ask(K, keep(mode, token, ttl, Forever, 0))
}

/// A request that does not wait.
fn tries(mode: Mode, token: u8, ttl: u64) -> Op {
    Op::Ask(K, keep(mode, token, ttl, NoWait, 0))
}

fn waits_and_keeps(mode: Mode, token: u8, ttl: u64) -> Op {
    Op::Ask(K, keep(mode, token, ttl, Forever, GRACE))
}

/// A request that does not wait, and leaves a place.
fn polls(mode: Mode, token: u8, ttl: u64) -> Op {
    Op::Ask(K, keep(mode, token, ttl, NoWait, GRACE))
}

pub(super) fn releases(token: u8) -> Op {
    Op::Ask(K, Request::Release(token))
}

/// Plays all histories of so many steps, and all that have one of these steps before them.
fn enumerate(name: &str, ops: &[Op], firsts: &[Op], depth: u32) {
    let world = World::of_one_key();
    enumerate_from(&world, name, &[], ops, depth);
    for first in firsts {
        let mut world = world.clone();
        world.step(*first);
        enumerate_from(&world, name, &[*first], ops, depth);
    }
}

/// Readers and writers that come, release and give up.
fn alphabet(tokens: &[u8]) -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::KillAt(K, 0), Op::KillAt(K, LAST)];
    ops.push(tries(Shared, tokens[0], 2));
    for &token in tokens {
        ops.push(waits(Exclusive, token, 2));
        ops.push(waits(Shared, token, 1));
        ops.push(releases(token));
    }
    ops
}

#[test]
fn all_histories_of_one_key_by_three_tokens() {
    let firsts = [waits(Exclusive, b'a', 2), waits(Shared, b'a', 1)];
    enumerate("one key, three tokens", &alphabet(b"abc"), &firsts, 5);
}

#[test]
fn all_histories_of_one_key_by_two_tokens() {
    enumerate("one key, two tokens", &alphabet(b"ab"), &[], 6);
}

/// Conversions of those who are absent, and locks that are replaced under them.
#[test]
fn all_histories_of_kept_conversions() {
    let mut ops = vec![Op::Tick(1), Op::KillAt(K, 0), releases(b'a')];
    for token in *b"ab" {
        ops.push(waits_and_keeps(Exclusive, token, 4));
        ops.push(polls(Exclusive, token, 4));
        ops.push(tries(Shared, token, 4));
    }
    ops.push(waits(Shared, b'c', 2));
    ops.push(Op::Restore(K, *b"ab", 3));
    ops.push(Op::Restore(K, *b"bc", 3));
    ops.push(Op::Restore(K, *b"bb", 3));
    let firsts = [
        tries(Shared, b'a', 4),
        tries(Shared, b'b', 4),
        Op::Restore(K, *b"ab", 3),
    ];
    enumerate("kept conversions", &ops, &firsts, 5);
}

/// Holders that ask for smaller and larger limits.
#[test]
fn all_histories_of_smaller_limits() {
    let mut ops = vec![Op::Tick(1), Op::KillAt(K, 0), releases(b'a')];
    for token in *b"abc" {
        ops.push(waits(counted(2), token, 4));
        ops.push(waits(counted(4), token, 3));
    }
    ops.push(polls(counted(2), b'a', 3));
    ops.push(waits_and_keeps(Exclusive, b'a', 3));
    ops.push(waits(Exclusive, b'b', 3));
    ops.push(Op::Restore(K, *b"ac", 3));
    let firsts = [
        waits(counted(2), b'a', 4),
        waits(counted(4), b'a', 3),
        Op::Restore(K, *b"ac", 3),
    ];
    enumerate("smaller limits", &ops, &firsts, 5);
}

/// Requests of one token in both modes, waiters that give up in the middle, and locks that are
/// replaced.
#[test]
fn all_histories_of_conversions_and_replacements() {
    let mut ops = vec![
        Op::KillAt(K, 0),
        Op::KillAt(K, 1),
        releases(b'a'),
        Op::Tick(2),
    ];
    for token in *b"abc" {
        ops.push(waits(Exclusive, token, 9));
        ops.push(waits(Shared, token, 1));
    }
    ops.push(Op::Restore(K, *b"ab", 2));
    ops.push(Op::Restore(K, *b"bc", 3));
    ops.push(Op::Restore(K, *b"bb", 2));
    let firsts = [waits(Shared, b'a', 1), Op::Restore(K, *b"ab", 2)];
    enumerate("conversions and replacements", &ops, &firsts, 5);
}

/// A queue is long, and its tree has many nodes, where there are many tokens.
struct Crowd {
    rng: StdRng,
    tokens: u8,
    longest: u64,
    has_limits: bool,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let tokens = rng.random_range(2..if seed % 20 == 0 { 60 } else { 20 });
        Self {
            tokens,
            longest: rng.random_range(1..60),
            has_limits: seed % 2 == 1,
            rng,
        }
    }

    fn below(&mut self, n: u8) -> u8 {
        self.rng.random_range(0..n)
    }

    /// None of them is `*`, which asks for a token of the server's.
    fn token(&mut self) -> u8 {
        b'A' + self.below(self.tokens)
    }

    fn op(&mut self) -> Op {
        let (token, other) = (self.token(), self.token());
        let ttl = self.rng.random_range(1..=self.longest);
        let mode = match self.below(if self.has_limits { 6 } else { 3 }) {
            0 => Exclusive,
            1..3 => Shared,
            _ => counted(self.rng.random_range(2..6)),
        };
        match self.below(20) {
            0..=7 => match self.below(10) {
                0 => tries(mode, token, ttl),
                1 => polls(mode, token, ttl),
                2..=4 => waits_and_keeps(mode, token, ttl),
                _ => waits(mode, token, ttl),
            },
            8..=12 => releases(token),
            13 => Op::Ask(K, Request::Renew(token, ttl)),
            14..=15 => Op::KillAt(K, usize::from(self.below(50))),
            16 if self.below(2) == 0 => Op::Delete(K),
            16 => Op::Restore(K, [token, other], ttl),
            _ => Op::Tick(self.rng.random_range(0..=self.longest / 3 + 1)),
        }
    }
}

#[test]
fn long_random_histories_of_one_key() {
    const STEPS: usize = 1_000;
    let runs = effort::runs(500);
    for seed in 0..runs {
        let mut crowd = Crowd::new(seed);
        play_random(&World::of_one_key(), seed, STEPS, || crowd.op());
    }
    println!("{runs} histories of {STEPS} steps");
}
