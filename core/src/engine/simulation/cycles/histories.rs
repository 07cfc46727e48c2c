//! The histories that are played.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::lock::effort;

const KEYS: u8 = 3;

fn all_histories(world: &World, ops: &[Op], depth: u32, refused: &mut BTreeMap<usize, u64>) -> u64 {
    if depth == 0 {
        for (len, count) in &world.refused {
            *refused.entry(*len).or_default() += count;
        }
        return 1;
    }
    let all = ops.iter().map(|op| {
        let mut next = world.clone();
        next.step(*op);
        all_histories(&next, ops, depth - 1, refused)
    });
    all.sum()
}

fn asks(modes: &[Mode], hows: &[How]) -> Vec<Op> {
    let mut ops = Vec::new();
    for (token, key) in (0..3).flat_map(|token| (0..KEYS).map(move |key| (token, key))) {
        for (mode, how) in modes
            .iter()
            .flat_map(|mode| hows.iter().map(move |how| (*mode, *how)))
        {
            ops.push(Op::Ask(token, key, mode, how));
        }
    }
    ops
}

const BOTH: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// A world in which each token has one key already.
fn all_hold(modes: [Mode; 3]) -> World {
    let mut world = World::new(KEYS);
    for (n, mode) in (0..3).zip(modes) {
        world.step(Op::Ask(n, n, mode, How::NoWait));
    }
    world
}

fn play(name: &str, world: &World, ops: &[Op], depth: u32) {
    let depth = effort::depth(depth);
    let mut refused = BTreeMap::new();
    let histories = all_histories(world, ops, depth, &mut refused);
    assert_eq!(histories, (ops.len() as u64).pow(depth));
    println!("{name}: {histories} histories of {depth} steps, refused by length {refused:?}");
    assert!(refused.contains_key(&2), "no cycle");
}

#[test]
fn all_histories_of_five_steps_with_exclusive_holds() {
    play(
        "exclusive",
        &World::new(KEYS),
        &asks(&[Mode::Exclusive], &[How::Block]),
        5,
    );
}

#[test]
fn all_histories_of_four_steps_in_both_modes() {
    play(
        "both modes",
        &World::new(KEYS),
        &asks(&BOTH, &[How::Block]),
        4,
    );
}

#[test]
fn all_histories_of_four_waits_where_each_token_has_a_key() {
    for modes in [
        [Mode::Exclusive, Mode::Exclusive, Mode::Exclusive],
        [Mode::Shared, Mode::Exclusive, Mode::Shared],
        [Mode::Shared, Mode::Shared, Mode::Shared],
    ] {
        play(
            "both modes",
            &all_hold(modes),
            &asks(&BOTH, &[How::Block]),
            4,
        );
    }
}

#[test]
fn all_histories_of_three_waits_with_kept_places() {
    let mut world = all_hold([Mode::Shared, Mode::Exclusive, Mode::Shared]);
    world.step(Op::Ask(1, 0, Mode::Shared, How::NoWait));
    world.step(Op::Ask(2, 1, Mode::Shared, How::Keep));
    let mut ops = asks(&BOTH, &[How::Block, How::Keep]);
    ops.extend([
        Op::Release(0, 0),
        Op::Leave(1, 2),
        Op::Delete(1),
        Op::EndGraces,
    ]);
    play("kept places", &world, &ops, 3);
}

/// Conversions, and requests that go on where their token has a place.
#[test]
fn all_histories_of_five_steps_of_two_keys_that_are_shared() {
    let mut world = World::new(KEYS);
    for (token, key) in [(0, 0), (1, 0), (1, 1), (2, 1)] {
        world.step(Op::Ask(token, key, Mode::Shared, How::NoWait));
    }
    let mut ops = vec![Op::Release(0, 0), Op::Leave(2, 0), Op::Rename(1, 0)];
    for (token, key) in [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)] {
        ops.push(Op::Ask(token, key, Mode::Exclusive, How::Block));
        ops.push(Op::Ask(token, key, Mode::Shared, How::Keep));
    }
    ops.push(Op::Ask(2, 0, Mode::Shared, How::BlockKeep));
    play("shared", &world, &ops, 5);
}

/// Places for two keys, also absent ones, with readers, writers and permits around them.
#[test]
fn all_histories_of_four_steps_with_places_for_two_keys() {
    let mut world = World::new(KEYS);
    world.step(Op::Ask(0, 0, Mode::Shared, How::NoWait));
    world.step(Op::Ask(1, 2, Mode::Exclusive, How::NoWait));
    let mut ops = vec![
        Op::Release(0, 0),
        Op::Leave(2, 0),
        Op::Rename(0, 1),
        Op::EndGraces,
    ];
    for first in BOTH {
        ops.push(Op::AskBoth(
            2,
            [(0, first), (1, Mode::Exclusive)],
            How::Block,
        ));
        ops.push(Op::AskBoth(2, [(0, first), (1, Mode::Shared)], How::Keep));
        ops.push(Op::Ask(1, 0, first, How::Block));
    }
    ops.push(Op::AskBoth(
        0,
        [(1, Mode::Exclusive), (2, Mode::Shared)],
        How::BlockKeep,
    ));
    ops.push(Op::AskBoth(
        1,
        [(1, Mode::Shared), (0, Mode::Exclusive)],
        How::Notify,
    ));
    ops.push(Op::Ask(1, 0, Mode::of_limit(3).unwrap(), How::Block));
    ops.push(Op::Ask(0, 2, Mode::Exclusive, How::Block));
    ops.push(Op::Ask(0, 1, Mode::Shared, How::Block));
    ops.push(Op::Ask(2, 2, Mode::Shared, How::NoWait));
    play("two keys", &world, &ops, 4);
}

/// Requests by channels, which take the place of the one before, in another mode.
#[test]
fn all_histories_of_four_steps_with_channels() {
    let mut world = World::new(KEYS);
    world.step(Op::Ask(0, 0, Mode::Exclusive, How::NoWait));
    world.step(Op::Ask(1, 1, Mode::Exclusive, How::NoWait));
    let modes = [Mode::Exclusive, Mode::Shared, Mode::of_limit(3).unwrap()];
    let mut ops = vec![Op::Release(0, 0), Op::Ask(1, 0, Mode::Shared, How::Keep)];
    for mode in modes {
        ops.push(Op::Ask(2, 0, mode, How::Notify));
        ops.push(Op::Ask(2, 0, mode, How::Block));
        ops.push(Op::Ask(1, 0, mode, How::Notify));
        ops.push(Op::Ask(2, 1, mode, How::Block));
    }
    play("channels", &world, &ops, 4);
}

#[test]
fn long_random_histories() {
    const RUNS: u64 = 300;
    const STEPS: usize = 400;
    let mut refused: BTreeMap<usize, u64> = BTreeMap::new();
    for seed in 0..RUNS {
        let mut rng = StdRng::seed_from_u64(seed);
        let (tokens, keys) = (rng.random_range(2..9), rng.random_range(1..9));
        let shares = rng.random_range(0.0..1.0);
        // In a ring each token asks for its own key and for the next one, and cycles are long.
        let ring = (seed % 3 == 0).then(|| rng.random_range(5..9));
        let (tokens, keys) = ring.map_or((tokens, keys), |len| (len, len));
        let shares = ring.map_or(shares, |_| 0.1);
        let mut world = World::new(keys);
        for _ in 0..STEPS {
            let token = rng.random_range(0..tokens);
            let key = match ring {
                Some(len) => (token + rng.random_range(0..2)) % len,
                None => rng.random_range(0..keys),
            };
            let mode = match rng.random_bool(shares) {
                true => Mode::Shared,
                false if seed % 4 == 1 => Mode::of_limit(rng.random_range(1..4)).unwrap(),
                false => Mode::Exclusive,
            };
            let how = match rng.random_range(0..10) {
                0 => How::NoWait,
                1..3 => How::Keep,
                3..5 => How::BlockKeep,
                5..7 => How::Notify,
                _ => How::Block,
            };
            let second = (key + rng.random_range(1..keys.max(2))) % keys;
            let both = [(key, mode), (second, Mode::Exclusive)].map(|(key, mode)| match mode {
                Mode::Counted(_) => (key, Mode::Shared),
                mode => (key, mode),
            });
            world.step(match rng.random_range(0..40) {
                0..5 if second != key && seed % 2 == 0 => Op::AskBoth(token, both, how),
                0..27 => Op::Ask(token, key, mode, how),
                27..34 => Op::Release(token, key),
                34..37 => Op::Leave(token, key),
                37 => Op::Delete(key),
                38 => Op::Rename(key, rng.random_range(0..keys)),
                _ => Op::EndGraces,
            });
        }
        for (len, count) in world.refused {
            *refused.entry(len).or_default() += count;
        }
    }
    println!("{RUNS} histories of {STEPS} steps, refused by length {refused:?}");
    assert!(refused.keys().any(|len| *len > 4));
}
