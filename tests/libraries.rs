//! The arithmetic of `make bench-peers` on the lines that the drivers print.

#[allow(dead_code, unreachable_pub, missing_docs)]
#[path = "../benches/libraries/catalogue.rs"]
mod catalogue;
#[allow(unreachable_pub)]
#[path = "../benches/libraries/holds.rs"]
mod holds;
#[allow(dead_code, unreachable_pub)]
#[path = "../benches/stats.rs"]
mod stats;
#[allow(unreachable_pub)]
#[path = "../benches/libraries/timeline.rs"]
mod timeline;

use std::time::Duration;

use catalogue::{version_in, LANGUAGES};
use stats::jain;
use timeline::Timeline;

/// Of 10 ms: client 0 takes the lock twice, then 1, then 0 again. Client 2 gets it after the time
/// is over.
const LINES: &str = "\
0 0 100 1100
0 1100 1200 2200
1 50 3050 4050
0 2200 4200 5200
2 0 10500 11500
1 4050 9950 10950
";
const END_US: u64 = 10_000;

fn timeline() -> Timeline {
    Timeline::of(LINES, 4, END_US).unwrap()
}

#[test]
fn acquisitions_until_the_end_are_counted_in_the_order_of_their_grants() {
    let timeline = timeline();
    assert_eq!(timeline.acquisitions, 5.0);
    assert_eq!(timeline.taken, [3.0, 2.0, 0.0, 0.0]);
    assert_eq!(timeline.starved(), 2.0);
    // 0 0 1 0 1: the first has no predecessor, the second follows itself.
    assert_eq!(timeline.hand_offs, 3.0);

    let mut lines: Vec<&str> = LINES.lines().collect();
    lines.sort_unstable();
    let by_client = Timeline::of(&lines.join("\n"), 4, END_US).unwrap();
    assert_eq!(by_client.hand_offs, 3.0);
}

#[test]
fn fairness_counts_clients_that_got_nothing() {
    // (3 + 2)² / (4 · (9 + 4))
    assert!((jain(&timeline().taken) - 25.0 / 52.0).abs() < 1e-9);
    assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
    assert_eq!(jain(&[9.0, 0.0, 0.0]), 1.0 / 3.0);
}

/// Waits of 100, 100, 3,000, 2,000 and 5,900 µs. In progress are one of client 0 for 4,800, and
/// those of 2 and 3 for 10,000. Client 1 holds.
#[test]
fn waits_in_progress_at_the_end_count_with_their_age() {
    let waits = timeline().waits;
    let close = |share: f64, us: f64| (waits.at(share) / us - 1.0).abs() < 0.002;
    assert!(close(0.25, 100.0));
    assert!(close(0.5, 3_000.0));
    assert!(close(0.75, 5_900.0));
    assert!(close(1.0, 10_000.0));
}

#[test]
fn without_grants_every_client_counts_as_waiting() {
    let timeline = Timeline::of("0 0 20000 21000\n", 2, END_US).unwrap();
    assert_eq!((timeline.acquisitions, timeline.starved()), (0.0, 2.0));
    assert!((timeline.waits.at(0.01) / 10_000.0 - 1.0).abs() < 0.002);
}

#[test]
fn a_malformed_acquisition_line_is_refused() {
    for line in [
        "",
        "0 0 100",
        "0 0 100 200 300",
        "0 0 -1 200",
        "zero 0 100 200",
        // No such client; granted before it was asked for; released before it was granted.
        "4 0 100 200",
        "0 101 100 200",
        "0 0 201 200",
    ] {
        let lines = format!("0 0 1 2\n{line}\n");
        assert!(Timeline::of(&lines, 4, END_US).is_err(), "{line:?}");
    }
}

#[test]
fn a_version_follows_the_last_separator() {
    let lock = r#"{ "node_modules/redlock": { "version": "4.2.0" }, "node_modules/redlock-5": { "version": "5.0.0-beta.2" } }"#;
    let of = |marks: &[&str]| version_in(lock, marks);
    let version = "\"version\": \"";
    assert_eq!(of(&["redlock\"", version]), Some("4.2.0"));
    assert_eq!(of(&["redlock-5\"", version]), Some("5.0.0-beta.2"));
    assert_eq!(of(&["redsync", version]), None);
}

/// The marks are those of files that change with the libraries.
#[test]
fn every_library_has_a_version() {
    for language in &LANGUAGES {
        for library in language.libraries {
            let version = language.version(library);
            assert!(
                version
                    .as_ref()
                    .is_some_and(|version| version.contains('.')),
                "{} of {}: {version:?}",
                library.driver,
                language.name
            );
        }
    }
}

#[test]
fn the_holds_can_be_chosen() {
    assert_eq!(holds::chosen("", false).unwrap(), holds::HOLDS_MS);
    assert_eq!(holds::chosen("", true).unwrap(), [0, 1, 100]);
    assert_eq!(holds::chosen("1000, 0,1000", true).unwrap(), [0, 1000]);
    for wrong in ["1,x", "-1", "10001", ","] {
        assert!(holds::chosen(wrong, false).is_err(), "{wrong}");
    }
    assert_eq!(holds::charted(&[0, 1, 100]), 1);
    assert_eq!(holds::charted(&[0, 100]), 0);
}

#[test]
fn a_round_has_two_turns_for_each_client() {
    let shortest = Duration::from_millis(2500);
    assert_eq!(holds::round_time(0, 64, shortest), shortest);
    assert_eq!(holds::round_time(100, 16, shortest).as_millis(), 3200);
    assert_eq!(holds::clients(1), holds::CLIENTS);
    assert_eq!(holds::clients(100), [16]);
    assert_eq!([holds::rounds(100, 3), holds::rounds(1000, 3)], [3, 1]);
}

#[test]
fn the_ideal_wait_is_a_turn_of_all_clients() {
    assert_eq!(holds::ideal_wait_us(100, 16), Some(1_600_000.0));
    assert_eq!(holds::ideal_wait_us(0, 16), None);
}
