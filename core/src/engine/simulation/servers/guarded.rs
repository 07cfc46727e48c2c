//! The guard: crashes and promotions that lose records, and no two clients that believe.

use super::dice::Kind;
use super::guard::{Rule, Scope, Settings as Guard};
use super::histories::{play, play_seeds, print_breach, small, take, NONE, ONE, TAKE, THREE};
use super::*;

/// Leases are longer than the second by which clocks may differ.
pub(super) const LONGEST_MS: u64 = 4_000;

/// After so many milliseconds no guard of a start is closed.
pub(super) const OPEN_MS: u64 = LONGEST_MS + 1_500;

pub(super) const RESTART: Guard = Guard {
    scope: Scope::Restart,
    max_ttl_ms: LONGEST_MS,
    ..NONE
};

pub(super) const FAILOVER: Guard = Guard {
    scope: Scope::Failover,
    slack_ms: 1_500,
    ..RESTART
};

/// One server that crashes, loses records, and whose clock is stepped.
pub(super) const RESTARTS: Kind = Kind {
    loses_nothing: false,
    must_be_safe: true,
    walls_drift: 4,
    guard: Guard {
        members: 1,
        ..RESTART
    },
    lingers: true,
    ..ONE
};

/// Three servers of which any may be promoted, whatever it lacks.
pub(super) const FAILOVERS: Kind = Kind {
    loses_nothing: false,
    must_be_safe: true,
    walls_apart_us: 450_000,
    walls_drift: 0,
    guard: FAILOVER,
    lingers: true,
    ..THREE
};

/// Nothing is assumed of old primaries.
pub(super) const QUORUM: Guard = Guard {
    scope: Scope::Quorum,
    max_ttl_ms: 2_000,
    fresh_ms: 1_000,
    ..RESTART
};

pub(super) const QUORUMS: Kind = Kind {
    guard: QUORUM,
    ..FAILOVERS
};

/// So many seeds, or more by a factor in the environment.
pub(super) fn seeds(n: u64) -> u64 {
    let times = std::env::var("GUARDED_TIMES").ok();
    n * times.map_or(1, |times| times.parse().expect("GUARDED_TIMES is a number"))
}

#[test]
fn guarded_by_a_quorum_there_is_no_breach() {
    let (tally, _) = play_seeds(0..seeds(1_000), 2_000, QUORUMS);
    println!("three servers with a quorum: {tally:?}");
    assert!(tally.believed > 10_000 && tally.promotions > 1_000);
}

/// Each rule matters.
#[test]
fn a_quorum_without_one_of_its_rules_has_a_breach() {
    let rules = [Rule::Majority, Rule::Fresh, Rule::Wait, Rule::Attachment];
    for rule in rules {
        find_breach_without(rule, QUORUMS, 2_000, 2_000);
    }
}

fn find_breach_without(rule: Rule, kind: Kind, seeds: u64, steps: usize) {
    let guard = Guard {
        without: Some(rule),
        ..kind.guard
    };
    find_breach(
        &format!("without {rule:?}"),
        Kind { guard, ..kind },
        seeds,
        steps,
    );
}

/// Plays as many seeds as it takes.
fn find_breach(what: &str, kind: Kind, seeds: u64, steps: usize) {
    let kind = Kind {
        must_be_safe: false,
        ..kind
    };
    let found = (0..seeds).find_map(|seed| play_seeds(seed..seed + 1, steps, kind).1);
    println!("{what}:");
    print_breach(found);
}

/// A primary whom both replicas have left, without its knowing, and the one of them that the other
/// follows. Each `at` of the steps is a time in milliseconds after that.
fn cut_off(before: &[Step], steps: &[(u64, Step)], without: Option<Rule>) -> u64 {
    let settings = Settings {
        clocks: vec![Clocks::default(); 3],
        guard: Guard { without, ..QUORUM },
        ..small(false)
    };
    let flow = |ms: u64| [Step::Tick(ms), Step::Flow];
    let mut history: Vec<Step> = (0..20).flat_map(|_| flow(250)).collect();
    history.extend(before);
    history.extend([Step::CutUnseen(1), Step::CutUnseen(2)]);
    history.extend([Step::Promote(1), Step::Follow(2, 1)]);
    let mut now = 0;
    for (at, step) in steps {
        while now + 50 <= *at {
            history.extend(flow(50));
            now += 50;
        }
        history.push(*step);
    }
    play(&settings, &history).breaches
}

#[test]
fn each_rule_of_a_quorum_matters_where_the_old_primary_lives_on() {
    let at_old = |c, what| Step::Ask(c, 0, what);
    let at_new = |c, what| Step::Ask(c, 1, what);
    let breach = |before: &[Step], steps: &[(u64, Step)], rule| {
        assert_eq!(cut_off(before, steps, None), 0, "{rule:?}");
        assert_eq!(cut_off(before, steps, Some(rule)), 1, "{rule:?}");
    };
    // The old primary grants while what it has heard is fresh.
    let late = [
        (750, at_old(0, take(2_000))),
        (2_500, at_new(1, take(500))),
        (2_700, Step::Flow),
    ];
    breach(&[], &late, Rule::WholeWait);
    breach(&[], &late, Rule::Wait);
    // Its client renews there for ever.
    let holds = [at_old(0, take(2_000)), Step::Flow];
    let mut renewals: Vec<_> = (0..8)
        .map(|n| (n * 500 + 400, at_old(0, What::Renew(0, 2_000))))
        .collect();
    renewals.insert(7, (3_440, at_new(1, take(500))));
    breach(&holds, &renewals, Rule::FreshRenewals);
    // It shortens its lease there, and renews it here. The other one gets the lock there.
    let both = [
        (0, at_old(0, What::Renew(0, 500))),
        (10, at_old(1, take(2_000))),
        (450, at_new(0, What::Renew(0, 2_000))),
        (700, Step::Flow),
    ];
    breach(&holds, &both, Rule::RenewalWait);
}

#[test]
fn each_rule_of_a_hand_over_matters() {
    let begin = [Step::Tick(OPEN_MS), Step::Flow];
    let breach = |wall_ahead_us: i64, steps: &[Step], rule| {
        let breaches = |without| {
            let ahead = Clocks {
                wall_ahead_us,
                ..Clocks::default()
            };
            let settings = Settings {
                clocks: vec![Clocks::default(), ahead, Clocks::default()],
                guard: Guard {
                    without,
                    ..FAILOVER
                },
                ..small(false)
            };
            play(&settings, &[&begin, steps].concat()).breaches
        };
        assert_eq!(breaches(None), 0, "{rule:?}");
        assert_eq!(breaches(Some(rule)), 1, "{rule:?}");
    };
    // The old primary comes back by a copy, and what it had granted is lost.
    let copied = [
        Step::Ask(0, 0, take(2_000)),
        Step::Promote(1),
        Step::Demote(0, 1),
        Step::Ask(1, 1, take(2_000)),
    ];
    breach(0, &copied, Rule::CameBack);
    // It was guarded itself.
    let chained = [
        Step::Ask(0, 0, take(2_000)),
        Step::Promote(1),
        Step::Tick(1),
        Step::Crash(0),
        Step::Follow(2, 1),
        // Before its slack is over it does not say when its guard ends.
        Step::Tick(1_550),
        Step::Flow,
        Step::HandOver(2),
        Step::Ask(1, 2, take(2_000)),
    ];
    breach(0, &chained, Rule::Rest);
    // Its clock is behind, so what it has granted ends early here.
    let early = [
        Step::Ask(0, 0, take(2_000)),
        Step::HandOver(1),
        Step::Tick(1),
        Step::Tick(1_600),
        Step::Ask(1, 1, take(2_000)),
    ];
    breach(450_000, &early, Rule::Clocks);
}

/// The last beats were sent before the step, so they are wrong about the clocks.
#[test]
fn a_clock_that_was_set_back_puts_off_the_end_of_a_hand_over() {
    let beat = [Step::Tick(250), Step::Flow];
    let begin = [Step::Tick(OPEN_MS), Step::Flow];
    let step = [Step::SetClock(0, -900), Step::Ask(0, 0, take(2_000))];
    let end = [
        Step::HandOver(1),
        Step::Flow,
        Step::Tick(700),
        Step::Ask(1, 1, take(2_000)),
    ];
    let steps = [&begin, &beat.repeat(4)[..], &step, &beat.repeat(2), &end].concat();
    let settings = Settings {
        clocks: vec![Clocks::default(); 3],
        guard: FAILOVER,
        ..small(false)
    };
    let tally = play(&settings, &steps);
    assert_eq!((tally.grants, tally.breaches), (1, 0));
}

/// The old primary sees the end of a hold that the new one would have renewed, and hands the lock
/// on. So it is where the new one starts again.
#[test]
fn a_hold_that_ends_within_the_slack_is_not_made_longer() {
    let steps = [
        Step::Tick(OPEN_MS),
        Step::Flow,
        Step::Ask(0, 0, take(2_000)),
        Step::Flow,
        Step::Tick(700),
        Step::Flow,
        Step::Promote(1),
        Step::Ask(1, 0, take(2_000)),
        Step::Ask(0, 1, What::Renew(0, 4_000)),
        Step::Tick(1_301),
        Step::Hear(1),
    ];
    let restart = Step::Restart(1, Disk::Lacks(0), true);
    let again = [Step::Tick(0), Step::Crash(1), restart];
    let again = [&steps[..7], &again, &steps[7..]].concat();
    for (steps, without, breaches) in [
        (&steps[..], None, 0),
        (&steps, Some(Rule::Longer), 1),
        (&again, None, 0),
        (&again, Some(Rule::SlackOfStart), 1),
    ] {
        let settings = Settings {
            clocks: vec![Clocks::default(); 3],
            guard: Guard {
                without,
                ..FAILOVER
            },
            old_primaries_stop: true,
            ..small(false)
        };
        let tally = play(&settings, steps);
        assert_eq!(tally.breaches, breaches, "{without:?}");
    }
}

#[test]
fn guarded_restarts_have_no_breach() {
    let (tally, _) = play_seeds(0..seeds(3_000), 500, RESTARTS);
    println!("one guarded server: {tally:?}");
    assert!(tally.believed > 10_000 && tally.crashes > 1_000);
}

#[test]
fn guarded_failovers_have_no_breach() {
    let (tally, _) = play_seeds(0..seeds(4_000), 500, FAILOVERS);
    println!("three guarded servers: {tally:?}");
    assert!(tally.believed > 10_000 && tally.promotions > 1_000);
}

/// A step of the clock is measured from where the clock was at the last lease.
#[test]
fn a_step_forward_is_seen_after_one_back_and_after_a_long_rest() {
    let settings = Settings {
        guard: RESTART,
        ..small(false)
    };
    let begin = [Step::Tick(OPEN_MS)];
    let (first, next) = (Step::Ask(0, 0, take(2_000)), Step::Ask(1, 0, take(2_000)));
    let back = [
        Step::SetClock(0, -60_000),
        first,
        Step::SetClock(0, 60_000),
        next,
    ];
    // In so much time clocks of other speed differ by more than the step.
    let hour = [Step::Tick(1_500), Step::Ask(0, 0, What::Renew(0, 2_000))].repeat(2_400);
    let rest = [&[first], &hour[..], &[Step::SetClock(0, 25_000), next]].concat();
    for steps in [&back[..], &rest] {
        let tally = play(&settings, &[&begin, steps].concat());
        assert_eq!((tally.grants, tally.breaches), (1, 0));
    }
}

/// Each rule matters.
#[test]
fn a_guard_without_one_of_its_rules_has_a_breach() {
    for rule in [Rule::Restart, Rule::Clock] {
        find_breach_without(rule, RESTARTS, 20_000, 500);
    }
    let rules = [
        Rule::Promotion,
        Rule::Slack,
        Rule::Stall,
        Rule::Serving,
        Rule::Holders,
    ];
    for rule in rules {
        find_breach_without(rule, FAILOVERS, 20_000, 500);
    }
}

/// What clients must do matters, too.
#[test]
fn a_careless_client_has_a_breach() {
    for careless in [Careless::CountsFromReply, Careless::WithoutMargin] {
        let kind = Kind {
            careless: Some(careless),
            ..RESTARTS
        };
        find_breach(&format!("{careless:?}"), kind, 20_000, 500);
    }
}

/// The new primary is behind, and takes the hold for alive that the old one has seen end.
#[test]
fn a_hold_of_another_server_ends_a_second_early() {
    let ahead = |ms: i64| Clocks {
        wall_ahead_us: ms * 1_000,
        ..Clocks::default()
    };
    let take = take(2_000);
    let steps = [
        Step::Tick(OPEN_MS),
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
