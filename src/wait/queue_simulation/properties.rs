//! Random histories of one key that shrink to the shortest one that still fails.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn mode() -> impl Strategy<Value = Mode> {
    let limit = (2..6_u32).prop_map(|n| Mode::of_limit(n).unwrap());
    prop_oneof![1 => Just(Mode::Exclusive), 2 => Just(Mode::Shared), 1 => limit]
}

fn op() -> impl Strategy<Value = Op> {
    let (token, ttl) = (b'a'..b'f', 1..12_u64);
    let block = prop_oneof![
        3 => Just(Block::Yes),
        1 => Just(Block::No),
        1 => Just(Block::Keep),
        1 => Just(Block::NoKeep),
    ];
    let ask = (mode(), token.clone(), ttl.clone(), block);
    prop_oneof![
        8 => ask.prop_map(|(mode, token, ttl, block)| Op::Ask(mode, token, ttl, block)),
        5 => token.clone().prop_map(Op::Release),
        1 => (token.clone(), ttl.clone()).prop_map(|(token, ttl)| Op::Renew(token, ttl)),
        2 => (0..8_usize).prop_map(|n| Op::Cancel(Seat::Nth(n))),
        4 => (1..6_u64).prop_map(Op::Tick),
        1 => Just(Op::Delete),
        1 => (token.clone(), token, ttl).prop_map(|(one, other, ttl)| Op::Replace(one, other, ttl)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_as_the_oracle_says(history in vec(op(), 1..60)) {
        let mut world = World::new();
        history.into_iter().for_each(|op| world.check(op));
    }
}
