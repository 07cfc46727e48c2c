//! The histories that are played.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::lock::effort;

/// Plays all histories of so many of these steps.
fn enumerate(ops: &[Op], depth: u32) {
    let depth = effort::depth(depth);
    let histories = all_histories(&World::new(), ops, depth);
    assert_eq!(histories, (ops.len() as u64).pow(depth));
    println!("{histories} histories of {depth} steps");
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
fn all_histories_of_six_steps_with_kept_upgrades() {
    enumerate(&kept_upgrades(), 6);
}

fn counted(n: u32) -> Mode {
    Mode::of_limit(n).unwrap()
}

/// Holders that ask for smaller and larger limits.
fn narrower() -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::Cancel(Seat::First), Op::Release(b'a')];
    for token in *b"abc" {
        ops.push(Op::Ask(counted(2), token, 4, Block::Yes));
        ops.push(Op::Ask(counted(4), token, 3, Block::Yes));
    }
    ops.push(Op::Ask(counted(2), b'a', 3, Block::NoKeep));
    ops.push(Op::Ask(Mode::Exclusive, b'a', 3, Block::Keep));
    ops.push(Op::Ask(Mode::Exclusive, b'b', 3, Block::Yes));
    ops.push(Op::Replace(b'a', b'c', 3));
    ops
}

#[test]
fn all_histories_of_six_steps_with_smaller_limits() {
    enumerate(&narrower(), 6);
}

/// Requests of one token in both modes, waiters that give up in the middle, and locks that are
/// replaced.
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
    enumerate(&upgrades(), 6);
}

#[test]
fn all_histories_of_six_steps_by_three_tokens() {
    enumerate(&alphabet(b"abc"), 6);
}

#[test]
fn all_histories_of_seven_steps_by_two_tokens() {
    enumerate(&alphabet(b"ab"), 7);
}

#[test]
fn long_random_histories() {
    const RUNS: u64 = 500;
    const STEPS: usize = 1_000;
    for seed in 0..effort::runs(RUNS) {
        let mut rng = StdRng::seed_from_u64(seed);
        let tokens: u8 = rng.random_range(2..if seed % 20 == 0 { 60 } else { 20 });
        let longest = rng.random_range(1..60);
        let mut world = World::new();
        for _ in 0..STEPS {
            let token = rng.random_range(0..tokens);
            let ttl = rng.random_range(1..=longest);
            let mode = match rng.random_range(0..if seed % 2 == 0 { 3 } else { 6 }) {
                0 => Mode::Exclusive,
                3..6 => counted(rng.random_range(2..6)),
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
    println!("{} histories of {STEPS} steps", effort::runs(RUNS));
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
    assert!(real.registry.remove_listener(1, Leaving::at(0)).is_some());
    events.clear();
    real.serve(now, &mut events);
    assert_eq!(events.len() as u64, 1 + EACH);
    assert_eq!(real.registry.waiters(0, b"k").count() as u64, EACH);
    let other = Token::new(b"y").unwrap();
    let waiting = real
        .registry
        .ahead_of(&real.key, (other, Mode::Shared), real.lock.as_ref(), now);
    assert!(waiting.other_upgrades);
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
        let client = 1 + from_the_middle;
        let removed = real.registry.remove_listener(client, Leaving::at(0));
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

#[test]
fn an_absent_writer_that_polls_ahead_of_many_is_no_scan() {
    // A scan of the places at each of these steps would be 10^10 steps.
    const EACH: u64 = 100_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    let ttl = Ttl::from_millis(1_000).unwrap();
    let ask = |name| Ask {
        mode: Mode::Exclusive,
        token: Token::new(name).unwrap(),
        ttl,
    };
    real.ask(ask(b"holder"), Block::Yes, now, &mut events);
    real.ask(ask(b"poller"), Block::NoKeep, now, &mut events);
    for n in 0..EACH {
        let (mode, name) = (Mode::Shared, n.to_le_bytes());
        let token = Token::new(&name).unwrap();
        real.ask(Ask { mode, token, ttl }, Block::Yes, now, &mut events);
    }
    real.lock = None;
    for _ in 0..EACH {
        // The lock is kept for the one that polls.
        real.serve(now, &mut events);
    }
    assert_eq!(events.len() as u64, 2 + EACH);
    real.ask(ask(b"poller"), Block::No, now, &mut events);
    assert!(matches!(events.pop(), Some(Event::Answered(Some(_)))));
    real.serve(now, &mut events);
    assert_eq!(real.registry.len() as u64, EACH);
}

fn permit(name: &[u8], limit: u32) -> Ask<'_> {
    Ask {
        mode: counted(limit),
        token: Token::new(name).unwrap(),
        ttl: Ttl::from_millis(1_000).unwrap(),
    }
}

#[test]
fn many_absent_permits_are_no_scan() {
    // A scan of the absent ones at each of these steps would be 10^10 steps.
    const EACH: u64 = 100_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    let names = |from: u64| (from..from + EACH).map(|n| n.to_le_bytes());
    let writer = Ask {
        mode: Mode::Exclusive,
        ..permit(b"w", Limit::MAX)
    };
    real.ask(writer, Block::Yes, now, &mut events);
    for name in names(0) {
        real.ask(permit(&name, Limit::MAX), Block::NoKeep, now, &mut events);
    }
    real.lock = None;
    for name in names(EACH) {
        real.serve(now, &mut events);
        real.ask(permit(&name, Limit::MAX), Block::No, now, &mut events);
        real.serve(now, &mut events);
        assert!(matches!(events.pop(), Some(Event::Answered(Some(_)))));
    }
    // Each of the absent ones asks again, the last one first.
    for name in names(0).rev() {
        real.ask(permit(&name, Limit::MAX), Block::No, now, &mut events);
        real.serve(now, &mut events);
        assert!(matches!(events.pop(), Some(Event::Answered(Some(_)))));
    }
    assert!(real.registry.is_empty());
}

#[test]
fn many_conversions_are_no_scan() {
    // A scan of the conversions at each of these steps would be 10^10 steps.
    const EACH: u32 = 100_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    let ttl = Ttl::from_millis(1_000).unwrap();
    let names = || (0..EACH).map(u32::to_le_bytes);
    for block in [Block::Keep, Block::NoKeep] {
        real.ask(permit(b"last", Limit::MAX), Block::No, now, &mut events);
        for name in names() {
            real.ask(permit(&name, Limit::MAX), Block::No, now, &mut events);
            real.serve(now, &mut events);
        }
        for name in names() {
            real.ask(permit(&name, EACH), block, now, &mut events);
            real.serve(now, &mut events);
        }
        for name in names() {
            let token = Token::new(&name).unwrap();
            let renewed = real.lock.as_ref().unwrap().renew(token, ttl, now);
            real.apply(&renewed.unwrap());
            real.serve(now, &mut events);
        }
        assert_eq!(real.registry.len(), EACH as usize);
        events.clear();
        // One holder fewer: now they are granted, or may ask again.
        let last = Token::new(b"last").unwrap();
        let released = real.lock.as_ref().unwrap().release(last, now);
        real.apply(&released.unwrap().0);
        real.serve(now, &mut events);
        let granted = if block == Block::Keep { EACH } else { 0 };
        assert_eq!(events.len(), granted as usize);
        for name in names() {
            let token = Token::new(&name).unwrap();
            let released = real.lock.as_ref().unwrap().release(token, now);
            real.apply(&released.unwrap().0);
            real.serve(now, &mut events);
            real.registry.give_up(&real.key, token);
        }
        assert!(real.registry.is_empty() && real.lock.is_none());
    }
}
