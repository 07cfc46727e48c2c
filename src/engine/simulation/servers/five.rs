//! Groups of five: a planned hand-over ends the guard early, though the old and the new primary are
//! no majority.

use super::dice::Kind;
use super::guard::{Rule, Settings as Guard};
use super::guarded::{seeds, QUORUM, QUORUMS};
use super::histories::{play, play_seeds, small, take};
use super::*;

const FIVE: Guard = Guard {
    members: 5,
    max_ttl_ms: 8_000,
    fresh_ms: 2_500,
    ..QUORUM
};

const FIVES: Kind = Kind {
    servers: 5,
    guard: Guard {
        max_ttl_ms: 2_000,
        ..FIVE
    },
    ..QUORUMS
};

#[test]
fn guarded_groups_of_five_have_no_breach() {
    let (tally, _) = play_seeds(0..seeds(200), 2_000, FIVES);
    println!("five servers with a quorum: {tally:?}");
    assert!(tally.believed > 2_000 && tally.promotions > 200);
}

/// Plays steps, each at a time in milliseconds after the group has been open for a while.
fn play_at(steps: &[(u64, &[Step])], without: Option<Rule>) -> Tally {
    let settings = Settings {
        clocks: vec![Clocks::default(); 5],
        guard: Guard { without, ..FIVE },
        ..small(false)
    };
    let flow = |ms: u64| [Step::Tick(ms), Step::Flow];
    let mut history: Vec<Step> = (0..48).flat_map(|_| flow(250)).collect();
    let mut now = 0;
    for (at, steps) in steps {
        while now < *at {
            history.extend(flow(50));
            now += 50;
        }
        history.extend(*steps);
    }
    play(&settings, &history)
}

const HELD: [Step; 2] = [Step::Ask(0, 0, take(8_000)), Step::Flow];

#[test]
fn a_planned_hand_over_is_over_soon() {
    let steps: [(u64, &[Step]); 4] = [
        (0, &HELD),
        (200, &[Step::HandOver(1)]),
        (600, &[Step::Ask(0, 1, What::Release(0))]),
        (650, &[Step::Ask(1, 1, take(2_000))]),
    ];
    assert_eq!(play_at(&steps, None).grants, 2);
}

/// Two replicas leave the primary for a third server, which has a majority by them. It makes a
/// lease longer that ends at the new primary.
#[test]
fn each_rule_of_a_hand_over_among_five_matters() {
    let breach = |steps: &[(u64, &[Step])], rule| {
        assert_eq!(play_at(steps, None).breaches, 0, "{rule:?}");
        assert_eq!(play_at(steps, Some(rule)).breaches, 1, "{rule:?}");
    };
    let leaves = |s: usize| [Step::CutUnseen(s), Step::Follow(s, 4)];
    let renewal = [Step::Ask(0, 4, What::Renew(0, 8_000))];
    let grant = [Step::Ask(1, 1, take(4_000))];
    let hand_over = |member: usize| {
        [
            Step::CutUnseen(member),
            Step::Promote(1),
            Step::Demote(0, 1),
            Step::Follow(member, 1),
        ]
    };
    let third = [Step::CutUnseen(4), Step::Promote(4)];
    // The one that the new primary counts was with the third server for long.
    breach(
        &[
            (0, &HELD),
            (200, &[&third[..], &leaves(2)].concat()),
            (3_200, &leaves(3)),
            (5_200, &hand_over(2)),
            (6_700, &renewal),
            (8_200, &grant),
        ],
        Rule::Soon,
    );
    // It was there for a moment, which would be enough for the third server.
    breach(
        &[
            (0, &HELD),
            (200, &[&third[..], &leaves(2), &leaves(3)].concat()),
            (700, &hand_over(2)),
            (2_950, &renewal),
            (3_000, &renewal),
            (3_050, &renewal),
            (8_200, &grant),
        ],
        Rule::Stay,
    );
    // The new primary itself has followed the third server just before.
    let follows = [Step::CutUnseen(1), Step::Follow(1, 0)];
    breach(
        &[
            (0, &HELD),
            (200, &[&third[..], &leaves(1)].concat()),
            (3_200, &leaves(2)),
            (4_500, &follows),
            (4_600, &hand_over(3)),
            (6_500, &renewal),
            (6_600, &renewal),
            (6_700, &renewal),
            (8_200, &grant),
        ],
        Rule::LongLink,
    );
}
