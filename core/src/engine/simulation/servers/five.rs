//! Groups of five: the old and the new primary of a planned failover are no majority, so the new
//! one waits as after any promotion.

use super::dice::Kind;
use super::guard::Settings as Guard;
use super::guarded::{seeds, QUORUM, QUORUMS};
use super::histories::{play, play_seeds, small, take};
use super::*;

const FIVE: Guard = Guard {
    members: 5,
    ..QUORUM
};

#[test]
fn guarded_groups_of_five_have_no_breach() {
    let kind = Kind {
        servers: 5,
        guard: FIVE,
        ..QUORUMS
    };
    let (tally, _) = play_seeds(0..seeds(200), 2_000, kind);
    println!("five servers with a quorum: {tally:?}");
    assert!(tally.believed > 2_000 && tally.promotions > 200);
}

#[test]
fn a_planned_failover_of_five_waits_as_after_any_promotion() {
    let settings = Settings {
        clocks: vec![Clocks::default(); 5],
        guard: FIVE,
        ..small(false)
    };
    let flow = |n: usize| [Step::Tick(50), Step::Flow].repeat(n);
    for (after, grants) in [(3_000, 0), (3_500, 1)] {
        let end = [Step::Ask(1, 1, take(2_000))];
        let steps = [
            &flow(100)[..],
            &[Step::HandOver(1)],
            &flow(after / 50),
            &end,
        ];
        assert_eq!(play(&settings, &steps.concat()).grants, grants, "{after}");
    }
}
