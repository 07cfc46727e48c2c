//! Random histories of a few steps that matter together, from a beginning that matters. They find
//! what needs several steps at certain times. Random worlds of everything find that too seldom.

use super::guard::Rule;
use super::guarded::{FAILOVER, OPEN_MS, QUORUM};
use super::histories::take;
use super::lingering::bound;
use super::worlds::World;
use super::*;
use crate::lock::effort;

const SEEDS: u64 = 4_000;

/// A primary whom both replicas have left without its knowing, and clients on both sides.
#[test]
fn an_old_primary_that_lives_on_has_no_breach() {
    let flow = |n: u64| (0..n).flat_map(|_| [Step::Tick(250), Step::Flow]);
    let mut begin: Vec<Step> = flow(20).collect();
    begin.extend([Step::Ask(0, 0, take(2_000)), Step::Flow]);
    begin.extend([Step::CutUnseen(1), Step::CutUnseen(2)]);
    begin.extend([Step::Promote(1), Step::Follow(2, 1)]);
    let steps = [
        Step::Ask(0, 0, What::Renew(0, 2_000)),
        Step::Ask(0, 0, What::Renew(0, 500)),
        Step::Ask(0, 1, What::Renew(0, 2_000)),
        Step::Ask(1, 0, take(2_000)),
        Step::Ask(1, 1, take(500)),
        Step::Tick(50),
        Step::Tick(250),
        Step::Tick(250),
        Step::Flow,
        Step::Flow,
        Step::Flow,
    ];
    let world = World::new(QUORUM, 3, &begin, &steps);
    let rules = [
        Rule::Wait,
        Rule::WholeWait,
        Rule::FreshRenewals,
        Rule::RenewalWait,
    ];
    let rules = rules.map(|rule| (rule, 400_000));
    world.wanders_without_a_breach((effort::runs(SEEDS), 60), &rules);
}

/// Promotions that are planned, and others, where the clocks of two servers differ.
#[test]
fn a_hand_over_has_no_breach() {
    let begin = [Step::Tick(OPEN_MS), Step::Flow];
    let steps = [
        Step::Ask(0, 0, take(2_000)),
        Step::Ask(0, 0, bound(2_000, 0)),
        Step::Ask(1, 0, take(2_000)),
        Step::Ask(0, 1, What::Renew(0, 4_000)),
        Step::Ask(0, 1, What::Check(0)),
        Step::Ask(1, 1, take(2_000)),
        Step::Ask(1, 2, take(2_000)),
        Step::Disconnect(0),
        Step::Promote(1),
        Step::Demote(0, 1),
        Step::HandOver(1),
        Step::HandOver(2),
        Step::Follow(2, 1),
        Step::Crash(0),
        Step::Tick(250),
        Step::Tick(700),
        Step::Flow,
        Step::Flow,
    ];
    let mut world = World::new(FAILOVER, 3, &begin, &steps);
    let ahead = |us: [i64; 3]| {
        us.map(|wall_ahead_us| Clocks {
            wall_ahead_us,
            ..Clocks::default()
        })
    };
    for (clocks, rules) in [
        (
            [0; 3],
            &[Rule::CameBack, Rule::Rest, Rule::Longer, Rule::Linger][..],
        ),
        ([0, 450_000, 0], &[Rule::Clocks][..]),
        ([450_000, -450_000, 0], &[Rule::LastSecond][..]),
    ] {
        world.clocks = ahead(clocks).to_vec();
        let rules: Vec<_> = rules.iter().map(|rule| (*rule, 400_000)).collect();
        world.wanders_without_a_breach((effort::runs(SEEDS), 30), &rules);
    }
}
