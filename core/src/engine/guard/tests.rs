//! Settings and clocks of the guard.

use super::usable::Usable;
use super::*;
use crate::command::guard::Beat;

const SECOND_US: u64 = 1_000_000;

fn settings(max_ttl_ms: u64) -> Settings {
    Settings {
        scope: Scope::Restart,
        max_ttl_ms,
        ..Settings::default()
    }
}

fn guard() -> Guard {
    let mut guard = Guard::default();
    guard.set(settings(10_000), 0);
    guard
}

/// How the guard changes where the wall clock is so far ahead of the other one.
fn look(guard: &mut Guard, boot_us: u64, ahead_us: u64) -> Option<Change> {
    guard.look(Now::from_micros(boot_us + ahead_us), boot_us, boot_us)
}

#[test]
fn small_steps_of_the_wall_clock_add_up() {
    let mut guard = guard();
    let mut ahead_us = 5_000;
    assert_eq!(look(&mut guard, 0, ahead_us), None);
    for boot_us in 1..=3 {
        ahead_us += 600;
        assert_eq!(look(&mut guard, boot_us, ahead_us), None, "{boot_us}");
    }
    let began = Some(Change::Began(Reason::Clock));
    assert_eq!(look(&mut guard, 4, ahead_us + 600), began);
    assert_eq!(guard.closed_for(4), Some((11_000, Reason::Clock)));
}

#[test]
fn clocks_of_other_speed_and_steps_back_are_passed_over() {
    let mut guard = guard();
    for second in 0..1_000 {
        let boot_us = second * SECOND_US;
        // 1 % fast, and then an hour back.
        let ahead_us = if second < 900 { boot_us / 100 } else { 0 };
        assert_eq!(look(&mut guard, boot_us, ahead_us), None, "{second}");
    }
}

/// A server with many clients looks that often while the guard is closed.
#[test]
fn the_jitter_of_a_million_looks_is_no_step() {
    let mut guard = guard();
    for n in 0..1_000_000 {
        // By turns the one clock and the other one has just begun a microsecond.
        assert_eq!(look(&mut guard, n * 10, 5 + n % 2), None, "{n}");
    }
    let began = Some(Change::Began(Reason::Clock));
    assert_eq!(look(&mut guard, 10_000_000, 3_000), began);
}

#[test]
fn leases_under_a_larger_setting_count_until_they_are_over() {
    let mut guard = guard();
    guard.set(settings(1_000), SECOND_US);
    guard.begin(Reason::Restart, 2 * SECOND_US);
    assert_eq!(
        guard.closed_for(2 * SECOND_US),
        Some((10_000, Reason::Restart))
    );
    guard.begin(Reason::Restart, 12 * SECOND_US);
    assert_eq!(
        guard.closed_for(12 * SECOND_US),
        Some((2_000, Reason::Restart))
    );
}

#[test]
fn the_reason_that_ends_last_is_named() {
    let mut guard = guard();
    guard.begin(Reason::Promotion, 0);
    assert_eq!(guard.closed_for(0), None, "the scope does not say so");
    guard.begin(Reason::Restart, 0);
    guard.set(
        Settings {
            scope: Scope::Failover,
            slack_ms: 5_000,
            ..settings(10_000)
        },
        0,
    );
    guard.begin(Reason::Promotion, 0);
    assert_eq!(guard.closed_for(0), Some((15_000, Reason::Promotion)));
    let began = Some(Change::Began(Reason::Promotion));
    assert_eq!(look(&mut guard, 0, 0), began);
    assert_eq!(look(&mut guard, 15 * SECOND_US, 0), Some(Change::Ended));
    guard.begin(Reason::Promotion, 15 * SECOND_US);
    guard.set(Settings::default(), 15 * SECOND_US);
    assert_eq!(guard.closed_for(15 * SECOND_US), None);
}

fn usable(guard: &Guard, boot_us: u64) -> Usable {
    guard.usable(|| b"k", || boot_us)
}

fn failover(scope: Scope) -> Settings {
    Settings {
        scope,
        slack_ms: 5_000,
        members: 3,
        fresh_ms: 1_000,
        ..settings(10_000)
    }
}

/// What a primary says whose guard is open.
fn beat_at(us: u64) -> Beat {
    Beat {
        left_ms: Some(0),
        longest_ms: 10_000,
        wait_ms: 15_000,
        clock_us: us,
    }
}

/// A primary that hands over has said something until then. One that was cut off may have granted.
#[test]
fn an_old_primary_that_comes_back_ends_the_guard_only_if_it_was_heard_to_the_end() {
    for (promoted_us, is_open) in [(SECOND_US, true), (3 * SECOND_US, false)] {
        let mut guard = Guard::default();
        guard.set(failover(Scope::Failover), 0);
        guard.linked();
        guard.hear(beat_at(0), 0, Now::from_micros(0));
        guard.begin(Reason::Promotion, promoted_us);
        guard.old_primary_is_back(b"old", promoted_us + 1);
        assert_eq!(guard.closed_for(promoted_us + 1).is_none(), is_open);
    }
}

/// The primary before may hand locks on until then.
#[test]
fn within_the_slack_a_primary_does_not_say_when_its_guard_ends() {
    let mut guard = Guard::default();
    guard.set(failover(Scope::Failover), 0);
    guard.begin(Reason::Promotion, 0);
    let left_ms = |at_us| guard.beat(at_us, Now::from_micros(at_us)).left_ms;
    assert_eq!(left_ms(4 * SECOND_US), None);
    assert_eq!(left_ms(6 * SECOND_US), Some(9_000));
}

#[test]
fn a_guard_that_a_majority_keeps_closed_stays_so_without_one() {
    let mut guard = Guard::default();
    guard.set(failover(Scope::Quorum), 0);
    guard.begin(Reason::Promotion, 0);
    let alone = Some((0, Reason::Alone));
    assert_eq!(guard.closed_for(SECOND_US), alone);
    guard.change(failover(Scope::Failover), SECOND_US);
    let closed_for = guard.closed_for(SECOND_US);
    assert_eq!(closed_for, Some((15_000, Reason::Promotion)));
    // Nor with one that is found by new settings.
    let mut guard = Guard::default();
    guard.set(failover(Scope::Quorum), 0);
    guard.begin(Reason::Restart, 0);
    let replicas = quorum::Replicas {
        offset: 20,
        all: vec![quorum::Replica {
            name: Box::from(*b"one"),
            acked: 15,
        }],
    };
    for second in [1, 60] {
        guard.note_sent(10, second * SECOND_US);
        guard.replicas_are(&replicas, second * SECOND_US);
    }
    assert_eq!(guard.closed_for(60 * SECOND_US), None);
    assert_eq!(guard.closed_for(63 * SECOND_US), alone);
    for (fresh_ms, members) in [(6_000, 3), (1_000, 1)] {
        let mut guard = guard.clone();
        let settings = Settings {
            fresh_ms,
            members,
            ..failover(Scope::Quorum)
        };
        guard.change(settings, 63 * SECOND_US);
        assert!(guard.closed_for(63 * SECOND_US).is_some());
    }
}

#[test]
fn a_guard_that_knows_more_begins_and_one_that_knows_less_forgets_slots() {
    let mut guard = guard();
    guard.change(failover(Scope::Failover), SECOND_US);
    assert_eq!(guard.closed_for(SECOND_US), Some((15_000, Reason::Restart)));
    guard.look_at_slots(slots::Cluster::default(), SECOND_US);
    assert!(guard.has_slots());
    guard.change(settings(10_000), SECOND_US);
    assert!(!guard.has_slots());
}

/// Commands that have waited meanwhile come before the messages of the other servers.
#[test]
fn a_primary_that_has_stood_still_for_longer_than_the_slack_looks_around() {
    for (scope, still_ms, closed_ms) in [
        (Scope::Failover, 4_999, None),
        (Scope::Failover, 5_001, Some(2_000)),
        // Neither assumes anything of the others.
        (Scope::Restart, 60_000, None),
    ] {
        let mut guard = Guard::default();
        guard.set(failover(scope), 0);
        guard.note_look(SECOND_US);
        assert_eq!(look(&mut guard, SECOND_US, 0), None);
        let boot_us = SECOND_US + still_ms * 1_000;
        guard.note_look(boot_us);
        look(&mut guard, boot_us, 0);
        let closed_for = guard.closed_for(boot_us).map(|(ms, _)| ms);
        assert_eq!(closed_for, closed_ms, "{scope:?}, {still_ms}");
        assert_eq!(usable(&guard, boot_us) != Usable::All, closed_ms.is_some());
        // A reload of its data, for which it stood still, may have brought any lease.
        guard.long_lease_came(10_000, boot_us - 1);
        assert_eq!(guard.closed_for(boot_us + 2 * SECOND_US), None);
    }
}

/// Whatever a replica lacked at its start has come with the data of its primary. So a planned
/// failover to it is as fast as to another one.
#[test]
fn a_link_to_a_primary_ends_the_guard_of_a_start() {
    for (scope, is_open) in [(Scope::Restart, false), (Scope::Failover, true)] {
        let mut guard = Guard::default();
        guard.set(failover(scope), 0);
        guard.begin(Reason::Restart, 0);
        assert_ne!(usable(&guard, SECOND_US), Usable::All);
        guard.linked();
        assert_eq!(guard.closed_for(SECOND_US).is_none(), is_open, "{scope:?}");
        // The primary decides which holds have ended with their connections.
        assert_eq!(usable(&guard, SECOND_US), Usable::All);
    }
}

/// The step of a clock is said before a planned failover can be.
#[test]
fn a_wall_clock_that_is_set_back_is_said_at_once() {
    let mut guard = Guard::default();
    guard.set(failover(Scope::Failover), 0);
    look(&mut guard, 1, SECOND_US);
    assert_eq!(guard.due_us(), None);
    look(&mut guard, 2, 0);
    assert_eq!(guard.due_us(), Some(0));
}

/// Holds of others are in doubt for as long as a lease may last that comes late.
#[test]
fn all_holds_count_when_all_leases_of_others_are_over() {
    let mut guard = Guard::default();
    let quorum = Settings {
        scope: Scope::Quorum,
        fresh_ms: 3_000,
        ..settings(10_000)
    };
    guard.set(quorum, 0);
    guard.begin(Reason::Promotion, 0);
    guard.long_lease_came(20_000, 12 * SECOND_US);
    assert_ne!(usable(&guard, 13 * SECOND_US), Usable::All);
    guard.quorum = Quorum::default();
    assert_ne!(usable(&guard, 32 * SECOND_US), Usable::All);
    look(&mut guard, 33 * SECOND_US, 0);
    assert_eq!(usable(&guard, 33 * SECOND_US), Usable::All);
}
