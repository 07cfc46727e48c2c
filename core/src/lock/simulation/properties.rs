//! Random histories that shrink to the shortest one that still fails.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn mode() -> impl Strategy<Value = Mode> {
    let limit = (2..6_u32).prop_map(|n| Mode::of_limit(n).unwrap());
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), limit]
}

fn op() -> impl Strategy<Value = Op> {
    let (token, ttl) = (b'a'..b'f', 1..20_u64);
    prop_oneof![
        6 => (mode(), token.clone(), ttl.clone()).prop_map(|(mode, t, ttl)| Op::Acquire(mode, t, ttl)),
        3 => token.clone().prop_map(Op::Release),
        2 => (token, ttl.clone()).prop_map(|(t, ttl)| Op::Renew(t, ttl)),
        1 => ttl.clone().prop_map(Op::Expire),
        3 => ttl.prop_map(Op::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_as_the_oracle_says(history in vec(op(), 1..80)) {
        let mut world = World::new();
        history.into_iter().for_each(|op| world.check(op));
    }
}
