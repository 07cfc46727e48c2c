//! The guard: crashes and promotions that lose records, and no two clients that believe.

use super::dice::Kind;
use super::guard::{Rule, Scope, Settings as Guard};
use super::histories::{play, play_seeds, print_breach, small, NONE, ONE, TAKE, THREE};
use super::*;

/// Leases are longer than the second by which clocks may differ.
const LONGEST_MS: u64 = 4_000;

const RESTART: Guard = Guard {
    scope: Scope::Restart,
    max_ttl_ms: LONGEST_MS,
    ..NONE
};

const FAILOVER: Guard = Guard {
    scope: Scope::Failover,
    slack_ms: 700,
    ..RESTART
};

/// One server that crashes, loses records, and whose clock is stepped.
const RESTARTS: Kind = Kind {
    loses_nothing: false,
    must_be_safe: true,
    walls_drift: 4,
    guard: RESTART,
    ..ONE
};

/// Three servers of which any may be promoted, whatever it lacks.
const FAILOVERS: Kind = Kind {
    loses_nothing: false,
    must_be_safe: true,
    walls_apart_us: 450_000,
    walls_drift: 0,
    guard: FAILOVER,
    ..THREE
};

/// Nothing is assumed of old primaries.
const QUORUM: Guard = Guard {
    scope: Scope::Quorum,
    max_ttl_ms: 2_000,
    fresh_ms: 1_000,
    ..RESTART
};

const QUORUMS: Kind = Kind {
    guard: QUORUM,
    ..FAILOVERS
};

#[test]
fn guarded_by_a_quorum_there_is_no_breach() {
    let (tally, _) = play_seeds(0..1_000, 2_000, QUORUMS);
    println!("three servers with a quorum: {tally:?}");
    assert!(tally.believed > 10_000 && tally.promotions > 1_000);
}

/// Each rule matters.
#[test]
fn a_quorum_without_one_of_its_rules_has_a_breach() {
    let rules = [
        Rule::Majority,
        Rule::Fresh,
        Rule::FreshRenewals,
        Rule::Wait,
        Rule::WholeWait,
        Rule::RenewalWait,
        Rule::Attachment,
        Rule::Rest,
        Rule::CameBack,
        Rule::Clocks,
    ];
    for rule in rules {
        let guard = Guard {
            without: Some(rule),
            ..QUORUM
        };
        let kind = Kind {
            must_be_safe: false,
            guard,
            ..QUORUMS
        };
        let mut seeds = (0..100).map(|n| n * 20..(n + 1) * 20);
        let found = seeds.find_map(|seeds| play_seeds(seeds, 2_000, kind).1);
        println!("without {rule:?}: {:?}", found.map(|(seed, ..)| seed));
    }
}

#[test]
fn guarded_restarts_have_no_breach() {
    let (tally, _) = play_seeds(0..3_000, 500, RESTARTS);
    println!("one guarded server: {tally:?}");
    assert!(tally.believed > 10_000 && tally.crashes > 1_000);
}

#[test]
fn guarded_failovers_have_no_breach() {
    let (tally, _) = play_seeds(0..4_000, 500, FAILOVERS);
    println!("three guarded servers: {tally:?}");
    assert!(tally.believed > 10_000 && tally.promotions > 1_000);
}

/// Each rule matters.
#[test]
fn a_guard_without_one_of_its_rules_has_a_breach() {
    let without = |kind: Kind, rule| {
        let guard = Guard {
            without: Some(rule),
            ..kind.guard
        };
        let kind = Kind {
            must_be_safe: false,
            guard,
            ..kind
        };
        let mut seeds = (0..200).map(|n| n * 100..(n + 1) * 100);
        let found = seeds.find_map(|seeds| play_seeds(seeds, 500, kind).1);
        println!("without {rule:?}:");
        print_breach(found);
    };
    for rule in [Rule::Restart, Rule::Clock] {
        without(RESTARTS, rule);
    }
    for rule in [Rule::Promotion, Rule::Slack, Rule::Serving, Rule::Holders] {
        without(FAILOVERS, rule);
    }
}

/// The new primary is behind, and takes the hold for alive that the old one has seen end.
#[test]
fn a_hold_of_another_server_ends_a_second_early() {
    let ahead = |ms: i64| Clocks {
        wall_ahead_us: ms * 1_000,
        ..Clocks::default()
    };
    let take = What::Take {
        name: 0,
        mode: Mode::Exclusive,
        ttl: 2_000,
        limits: Limits::Forever,
        keep: 0,
    };
    let steps = [
        Step::Tick(LONGEST_MS + 1_000),
        Step::Ask(0, 0, take),
        Step::Receive(1, usize::MAX),
        Step::Tick(1_500),
        Step::Ask(1, 0, take),
        Step::Tick(501),
        Step::Promote(1),
        Step::Ask(0, 1, What::Check(0)),
    ];
    let breaches = |without| {
        let settings = Settings {
            clocks: vec![ahead(450), ahead(-450)],
            guard: Guard {
                without,
                ..FAILOVER
            },
            ..small(false)
        };
        play(&settings, &steps).breaches
    };
    assert_eq!(breaches(None), 0);
    assert_eq!(breaches(Some(Rule::LastSecond)), 1);
}

/// Whoever waits is granted when the guard ends.
#[test]
fn the_end_of_the_guard_grants_those_who_wait() {
    let settings = Settings {
        guard: RESTART,
        ..small(false)
    };
    let steps = [
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
        Step::Ask(0, 0, TAKE),
        Step::Tick(LONGEST_MS + 999),
    ];
    assert_eq!(play(&settings, &steps).grants, 0);
    let all = [&steps[..], &[Step::Tick(1)]].concat();
    assert_eq!(play(&settings, &all).grants, 1);
}
