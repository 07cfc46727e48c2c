//! Settings and clocks of the guard.

use super::*;

const SECOND_US: u64 = 1_000_000;

fn settings(max_ttl_ms: u64) -> Settings {
    Settings {
        scope: Scope::Restart,
        max_ttl_ms,
        drift: 10,
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
    guard.lacks_nothing();
    assert_eq!(
        look(&mut guard, 0, 0),
        Some(Change::Began(Reason::Promotion))
    );
    assert_eq!(look(&mut guard, 15 * SECOND_US, 0), Some(Change::Ended));
    guard.begin(Reason::Promotion, 15 * SECOND_US);
    guard.set(Settings::default(), 15 * SECOND_US);
    assert_eq!(guard.closed_for(15 * SECOND_US), None);
}
