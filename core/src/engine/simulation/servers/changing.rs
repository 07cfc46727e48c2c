//! Settings of the guard that change while servers run.

use super::dice::Kind;
use super::guard::{Rule, Scope, Settings as Guard};
use super::guarded::{seeds, FAILOVERS, LONGEST_MS, QUORUM, QUORUMS, RESTART, RESTARTS};
use super::histories::{play, play_seeds, small, take};
use super::worlds::World;
use super::*;

/// Times that become shorter and longer again, and modes that ask for more and less.
#[test]
fn settings_that_change_have_no_breach() {
    for (kind, steps) in [(RESTARTS, 500), (FAILOVERS, 500), (QUORUMS, 2_000)] {
        let kind = Kind {
            settings_change: true,
            ..kind
        };
        let (tally, _) = play_seeds(0..seeds(1_000), steps, kind);
        println!("settings that change, {:?}: {tally:?}", kind.guard.scope);
        assert!(tally.believed > 2_000 && tally.promotions + tally.crashes > 500);
    }
}

/// The settings of the time before the start count, whenever the note of it is read.
#[test]
fn a_shorter_longest_lease_right_after_a_start_counts_later() {
    let shorter = Guard {
        max_ttl_ms: LONGEST_MS / 2,
        ..RESTART
    };
    let steps = [
        Step::Tick(LONGEST_MS + 1_000),
        Step::Ask(0, 0, take(LONGEST_MS)),
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
        Step::Set(shorter),
        Step::Tick(LONGEST_MS / 2 + 1_001),
        Step::Ask(1, 0, take(1_000)),
    ];
    let settings = Settings {
        guard: RESTART,
        ..small(false)
    };
    let tally = play(&settings, &steps);
    assert_eq!((tally.grants, tally.breaches), (1, 0));
}

/// A request waits for longer than all leases of the time before a shorter setting. A client that
/// counts from the reply would believe in its lease.
#[test]
fn a_shorter_longest_lease_is_for_those_who_wait_too() {
    let short = LONGEST_MS / 4;
    let shorter = Guard {
        max_ttl_ms: short,
        ..RESTART
    };
    let renewal = [
        Step::Tick(short / 2),
        Step::Ask(0, 0, What::Renew(0, short)),
    ];
    let begin = [
        Step::Tick(LONGEST_MS + 1_000),
        Step::Ask(0, 0, take(LONGEST_MS)),
        Step::Ask(1, 0, take(LONGEST_MS)),
        Step::Set(shorter),
    ];
    let end = [
        Step::Ask(0, 0, What::Release(0)),
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
        Step::Tick(short + 1_001),
        Step::Ask(0, 0, take(short)),
    ];
    let steps = [&begin[..], &renewal.repeat(10), &end].concat();
    for (without, breaches) in [(None, 0), (Some(Rule::Waiting), 1)] {
        let settings = Settings {
            guard: Guard { without, ..RESTART },
            careless: Some(Careless::CountsFromReply),
            ..small(false)
        };
        assert_eq!(play(&settings, &steps).breaches, breaches, "{without:?}");
    }
}

/// The new primary lacks a lease of the time before a shorter setting. Its wait, which counts from
/// when the majority followed, must not become shorter while it runs.
#[test]
fn a_shorter_longest_lease_after_a_promotion_counts_later() {
    let flow = |n| [Step::Tick(50), Step::Flow].repeat(n);
    let promotion = [
        Step::Ask(0, 0, take(2_000)),
        Step::Crash(0),
        Step::Promote(1),
        Step::Follow(2, 1),
    ];
    let shorter = [Step::Set(Guard {
        max_ttl_ms: 500,
        ..QUORUM
    })];
    let end = [Step::Ask(1, 1, take(500)), Step::Flow];
    let settings = Settings {
        clocks: vec![Clocks::default(); 3],
        guard: QUORUM,
        ..small(false)
    };
    for (more, grants) in [(30, 1), (80, 2)] {
        let steps = [
            &flow(100)[..],
            &promotion,
            &flow(4),
            &shorter,
            &flow(more),
            &end,
        ];
        let tally = play(&settings, &steps.concat());
        assert_eq!((tally.grants, tally.breaches), (grants, 0), "{more}");
    }
}

/// A server that has lost a lease while its guard was off, and all that operators and clients may
/// do once it is on.
#[test]
fn all_short_histories_of_a_guard_that_is_turned_on_have_no_breach() {
    let off = Guard {
        scope: Scope::Off,
        ..RESTART
    };
    let failover = Guard {
        scope: Scope::Failover,
        ..RESTART
    };
    let begin = [
        Step::Ask(0, 0, take(LONGEST_MS)),
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
        Step::Set(RESTART),
    ];
    let steps = [
        Step::Ask(0, 0, What::Renew(0, LONGEST_MS)),
        Step::Ask(0, 0, take(LONGEST_MS)),
        Step::Ask(1, 0, take(LONGEST_MS)),
        Step::Ask(1, 0, What::Release(0)),
        Step::Set(RESTART),
        Step::Set(failover),
        Step::Tick(LONGEST_MS / 2),
        Step::Tick(LONGEST_MS + 1_001),
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
    ];
    let world = World::new(off, 1, &begin, &steps);
    world.none_has_a_breach("turned on", 4, &[Rule::TurnedOn]);
}

/// A replica that was promoted, and that nobody follows. Its old primary has gone on for long with
/// the majority, and is gone now. The operator gives the majority up.
#[test]
fn all_short_histories_of_a_majority_that_is_given_up_have_no_breach() {
    let beat = [Step::Tick(250), Step::Flow];
    let end = [Step::Ask(0, 0, take(2_000)), Step::Crash(0)];
    let beats = beat.repeat(20);
    let begin = [&beats[..], &[Step::Promote(1)], &beats, &end].concat();
    let as_if = |scope| Step::Set(Guard { scope, ..QUORUM });
    let steps = [
        as_if(Scope::Restart),
        as_if(Scope::Failover),
        as_if(Scope::Quorum),
        Step::Ask(0, 1, What::Renew(0, 2_000)),
        Step::Ask(0, 1, take(2_000)),
        Step::Ask(1, 1, take(2_000)),
        Step::Follow(2, 1),
        Step::Flow,
        Step::Tick(50),
        Step::Tick(1_000),
        Step::Tick(2_050),
    ];
    let world = World::new(QUORUM, 3, &begin, &steps);
    world.none_has_a_breach("given up", 4, &[Rule::GivenUp]);
}
