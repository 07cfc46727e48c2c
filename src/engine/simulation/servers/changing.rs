//! Settings of the guard that change while servers run.

use super::dice::Kind;
use super::guard::Settings as Guard;
use super::guarded::{seeds, FAILOVERS, LONGEST_MS, QUORUMS, RESTART, RESTARTS};
use super::histories::{play, play_seeds, small, take};
use super::*;

/// Times that become shorter and longer again, and a majority that is asked and not asked.
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
