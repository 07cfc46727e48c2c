//! `INFO lock` compared with the commands that ran.

mod counters;
mod gauges;
mod replicas;
mod times;

use std::collections::BTreeMap;

use crate::harness::{wait_for, Client, Kind, Server};

on_every_server![
    info_has_the_section_in_every_form_of_the_command,
    resetstat_resets_the_counters_and_not_the_gauges,
];

const GAUGES: [&str; 14] = [
    "held_exclusive",
    "held_shared",
    "held_counted",
    "held_keys",
    "held_bound",
    "waiters",
    "waiters_blocked",
    "waiters_notified",
    "waiters_absent",
    "waited_keys",
    "waiting",
    "waiting_bytes",
    "guard_left_ms",
    "guard_members_fresh",
];

const COUNTERS: [&str; 32] = [
    "macquired",
    "acquired",
    "reacquired",
    "refused",
    "waited",
    "handed_over",
    "timed_out",
    "resumed",
    "passed_over",
    "published",
    "unheard",
    "disconnected",
    "disconnected_later",
    "taken_back",
    "deadlocks",
    "deadlock_cycles",
    "deadlock_over_budget",
    "guards",
    "guarded",
    "queue_full",
    "released",
    "released_later",
    "not_owner",
    "renewed",
    "lost_renewals",
    "results_found",
    "results_answered",
    "executed",
    "not_held",
    "expired",
    "forced",
    "evicted",
];

const TIMES: [&str; 12] = [
    "wait_count",
    "wait_usec_p50",
    "wait_usec_p90",
    "wait_usec_p99",
    "wait_usec_p999",
    "wait_usec_max",
    "hold_count",
    "hold_usec_p50",
    "hold_usec_p90",
    "hold_usec_p99",
    "hold_usec_p999",
    "hold_usec_max",
];

/// The counters that have a window.
const RECENT: [&str; 9] = [
    "acquired",
    "refused",
    "waited",
    "handed_over",
    "timed_out",
    "released",
    "expired",
    "forced",
    "evicted",
];

/// The fields of the last minute.
fn of_window() -> Vec<String> {
    let names = RECENT.iter().chain(&TIMES);
    names.map(|name| format!("{name}_1m")).collect()
}

/// The fields of `INFO lock`, without the prefix of the module.
type Stats = BTreeMap<String, u64>;

#[track_caller]
pub fn stats(c: &mut Client) -> Stats {
    fields(&c.text("INFO lock"))
}

#[track_caller]
fn fields(info: &str) -> Stats {
    let fields = info.lines().filter_map(|line| line.strip_prefix("lock_"));
    // A word, which the tests of the guard read.
    let fields = fields.filter(|line| !line.starts_with("guard:"));
    let field = |line: &str| {
        let (name, value) = line.split_once(':').expect("a field");
        (name.to_string(), value.parse().expect("a number"))
    };
    fields.map(field).collect()
}

/// The counters that are not 0.
#[track_caller]
pub fn counted(c: &mut Client) -> Stats {
    let mut stats = stats(c);
    stats.retain(|name, n| COUNTERS.contains(&name.as_str()) && *n > 0);
    stats
}

fn of(expected: &[(&str, u64)]) -> Stats {
    let expected = expected.iter().map(|(name, n)| (name.to_string(), *n));
    expected.collect()
}

/// Exclusive holds, shared holds, locks, and the holds of counted locks, from the gauges.
#[track_caller]
pub fn held(c: &mut Client) -> [u64; 4] {
    let stats = stats(c);
    let names = ["held_exclusive", "held_shared", "held_keys", "held_counted"];
    names.map(|name| stats[name])
}

/// The same, counted from every key. Leaves the client in database 0.
#[track_caller]
fn found(c: &mut Client) -> [u64; 4] {
    let [mut exclusive, mut shared, mut keys, mut counted] = [0; 4];
    for db in 0..4 {
        c.call(&format!("SELECT {db}"));
        for key in c.call("KEYS *").words::<Vec<_>>() {
            if c.text(&format!("TYPE {key}")) != "redislock" {
                continue;
            }
            let info = c.call(&format!("LOCK.INFO {key}"));
            let holders = u64::try_from(info.field("holders").items().len()).unwrap();
            keys += 1;
            match info.field("mode").as_bytes() {
                b"shared" => shared += holders,
                b"counted" => counted += holders,
                _ => exclusive += holders,
            }
        }
    }
    c.call("SELECT 0");
    [exclusive, shared, keys, counted]
}

/// Fails the test unless the gauges match the keys: at once, except for locks that the server frees
/// on another thread.
#[track_caller]
fn assert_held(c: &mut Client, when: &str) -> [u64; 4] {
    let expected = found(c);
    wait_for(
        &format!("the gauges after {when} to be {expected:?}"),
        || (held(c) == expected).then_some(expected),
    )
}

fn info_has_the_section_in_every_form_of_the_command(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for line in ["INFO lock", "INFO everything", "INFO modules"] {
        let info = c.text(line);
        assert!(info.contains("# lock\r\n"), "{line}");
        let fields = fields(&info);
        let names: Vec<_> = fields.keys().map(String::as_str).collect();
        let window = of_window();
        let window: Vec<_> = window.iter().map(String::as_str).collect();
        let mut expected = [&GAUGES[..], &COUNTERS, &TIMES, &window].concat();
        expected.sort_unstable();
        assert_eq!(names, expected, "{line}");
        assert!(fields.values().all(|n| *n == 0), "{fields:?}");
    }
    // The default output of INFO, and its other sections, belong to the server.
    for line in ["INFO", "INFO server"] {
        assert!(!c.text(line).contains("lock_acquired"), "{line}");
    }
}

fn resetstat_resets_the_counters_and_not_the_gauges(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE held me 600000");
    c.int("LOCK.ACQUIRE k me 600000");
    let waiter = server.blocked("LOCK.ACQUIRE k you 600000 BLOCK 0");
    let other = server.blocked("LOCK.ACQUIRE k other 600000 BLOCK 0");
    c.int("LOCK.RELEASE k me");
    waiter.fence();
    let before = stats(&mut c);
    assert!(
        before["wait_count"] == 1 && before["hold_count"] == 1,
        "{before:?}"
    );
    assert!(before["wait_usec_max"] > 0, "{before:?}");
    // The server has just started, so all of it was in the last minute.
    for name in RECENT.iter().chain(&TIMES) {
        assert_eq!(before[&format!("{name}_1m")], before[*name], "{name}");
    }
    // A lock that was ended by force and not accessed since.
    c.int("LOCK.ACQUIRE forced me 600000");
    c.call("SET forced over");
    c.ok("LOCK.RESETSTAT");
    let after = stats(&mut c);
    for (name, n) in &after {
        let expected = if GAUGES.contains(&name.as_str()) {
            before[name]
        } else {
            0
        };
        assert_eq!(*n, expected, "{name}");
    }
    assert_eq!(after["waiters"], 1);
    assert_eq!(after["held_exclusive"], 2);
    // The counters continue.
    c.int("LOCK.RELEASE k you");
    other.fence();
    let now = stats(&mut c);
    assert_eq!(
        (now["handed_over"], now["wait_count"], now["hold_count"]),
        (1, 1, 1)
    );
}
