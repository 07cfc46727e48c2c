//! Forged records, one for each rule.

use super::journal::{read, Line};
use super::judge::{judge, Verdict};

/// Lines of `at who to what text`, times in milliseconds.
fn lines(lines: &[&str]) -> Vec<Line> {
    let line = |line: &&str| {
        let mut words = line.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (at, who, to, what, text) = (word(), word(), word(), word(), word());
        format!("{{\"at\":{at}000,\"who\":\"{who}\",\"to\":{to},\"what\":\"{what}\",\"text\":{text:?}}}\n")
    };
    let text: String = lines.iter().map(line).collect();
    read(&text)
}

fn verdict(lines: &[&str]) -> Verdict {
    judge(&self::lines(lines), Some(500))
}

const FIRST: [&str; 2] = [
    "10 c1 7001 send LOCK.ACQUIRE k a 1000 BLOCK 50",
    "20 c1 7001 reply 100",
];

#[track_caller]
fn overlaps(expected: usize, more: &[&str]) {
    let verdict = verdict(&[&FIRST[..], more].concat());
    assert_eq!(verdict.overlaps.len(), expected, "{verdict:?}");
}

#[test]
fn a_lease_that_is_over_excludes_nobody() {
    // 10 + 1000 - 10 - 2.
    let [send, before] = [
        "500 c2 7002 send LOCK.ACQUIRE k b 1000 BLOCK 900",
        "997 c2 7002 reply 200",
    ];
    overlaps(1, &[send, before]);
    overlaps(0, &[send, "998 c2 7002 reply 200"]);
    overlaps(
        0,
        &[
            "500 c2 7002 send LOCK.ACQUIRE k2 b 1000",
            "501 c2 7002 reply 200",
        ],
    );
}

#[test]
fn a_release_ends_a_belief_when_it_is_sent() {
    let release = "100 c1 7001 send LOCK.RELEASE k a";
    let send = "90 c2 7001 send LOCK.ACQUIRE k b 1000 BLOCK 900";
    overlaps(
        0,
        &[
            send,
            release,
            "101 c2 7001 reply 200",
            "102 c1 7001 reply 1",
        ],
    );
    overlaps(
        1,
        &[send, "99 c2 7001 reply 200", release, "102 c1 7001 reply 1"],
    );
}

#[test]
fn a_renewal_counts_from_its_sending() {
    let renew = [
        "500 c1 7001 send LOCK.RENEW k a 1000",
        "600 c1 7001 reply 1",
    ];
    let take = [
        "1400 c2 7002 send LOCK.ACQUIRE k b 900",
        "1480 c2 7002 reply 200",
    ];
    overlaps(1, &[renew, take].concat());
    let lost = [
        "500 c1 7001 send LOCK.RENEW k a 1000",
        "999 c1 7001 reply 1",
    ];
    overlaps(0, &[lost, take].concat());
    let refused = [
        "500 c1 7001 send LOCK.RENEW k a 1000",
        "600 c1 7001 reply 0",
    ];
    let at_once = [
        "610 c2 7002 send LOCK.ACQUIRE k b 900",
        "620 c2 7002 reply 200",
    ];
    overlaps(0, &[refused, at_once].concat());
    // It shortens the lease, whether or not a reply comes.
    let shorter = [
        "500 c1 7001 send LOCK.RENEW k a 100",
        "600 c1 7001 reply lost",
    ];
    overlaps(0, &[shorter, at_once].concat());
}

#[test]
fn a_check_without_a_fence_ends_a_belief() {
    let check = ["500 c1 7001 send LOCK.CHECK k a", "600 c1 7001 reply nil"];
    let take = [
        "610 c2 7002 send LOCK.ACQUIRE k b 900",
        "620 c2 7002 reply 200",
    ];
    overlaps(0, &[check, take].concat());
}

#[test]
fn a_late_grant_counts_from_its_renewal() {
    let late = [
        "30 c2 7001 send RWLOCK.RLOCK k b 100 BLOCK 900",
        "800 c2 7001 reply 200",
    ];
    overlaps(0, &late);
    let renew = ["801 c2 7001 send LOCK.RENEW k b 100", "802 c2 7001 reply 1"];
    overlaps(1, &[late, renew].concat());
}

#[test]
fn readers_exclude_writers_only() {
    let downgrade = [
        "100 c1 7001 send RWLOCK.RLOCK k a 1000",
        "110 c1 7001 reply 100",
    ];
    let reader = [
        "50 c2 7001 send RWLOCK.RLOCK k b 1000 BLOCK 900",
        "105 c2 7001 reply 200",
    ];
    overlaps(0, &[downgrade, reader].concat());
    overlaps(1, &reader);
    let writer = [
        "50 c2 7001 send LOCK.ACQUIRE k b 1000 BLOCK 900",
        "105 c2 7001 reply 200",
    ];
    overlaps(1, &[downgrade, writer].concat());
    let upgrade = [
        "120 c1 7001 send LOCK.ACQUIRE k a 1000",
        "130 c1 7001 reply 100",
    ];
    overlaps(1, &[downgrade, reader, upgrade].concat());
}

#[test]
fn fences_rise_in_the_order_of_grants() {
    let falls = |to: u16, fence: u64| {
        let promoted = "30 driver 7002 promoted ";
        let send = format!("40 c2 {to} send LOCK.ACQUIRE other b 1000");
        let reply = format!("50 c2 {to} reply {fence}");
        let lines = [&FIRST[..], &[promoted, &send, &reply]].concat();
        verdict(&lines).fences.len()
    };
    assert_eq!([falls(7001, 101), falls(7001, 100)], [0, 1]);
    assert_eq!([falls(7002, 101), falls(7002, 100)], [0, 1]);
    // Granted before it was asked for again.
    let again = [
        "11 c2 7001 send LOCK.ACQUIRE other b 1000",
        "20 c2 7001 reply lost",
        "40 c2 7001 send LOCK.ACQUIRE other b 1000",
        "50 c2 7001 reply 99",
    ];
    assert_eq!(verdict(&[&FIRST[..], &again].concat()).fences.len(), 0);
    // An old primary gives a smaller one than the new one has.
    let old_after_new = [
        "10 driver 7002 promoted ",
        "40 c1 7002 send LOCK.ACQUIRE k a 1000",
        "50 c1 7002 reply 100",
        "60 c2 7001 send LOCK.ACQUIRE other b 1000",
        "70 c2 7001 reply 99",
    ];
    assert_eq!(verdict(&old_after_new).fences.len(), 0);
}

#[test]
fn the_pause_ends_with_the_first_new_grant() {
    let lines = [
        "100 driver 7002 promoting ",
        "110 driver 7002 promoted ",
        "111 driver 7002 knows a 900 exclusive",
        "120 c1 7002 send LOCK.RENEW k a 1000",
        "130 c1 7002 reply 1",
        "140 c2 7002 send LOCK.ACQUIRE other b 1000 BLOCK 3000",
        "115 watcher 7002 guard alone",
        "150 watcher 7002 guard promotion",
        "160 watcher 7002 guard open",
        "600 driver 7001 demoted ",
        "1610 c2 7002 reply 200",
    ];
    let round = verdict(&[&FIRST[..], &lines].concat());
    let expected = Verdict {
        grants: 2,
        pause_us: Some(1_500_000),
        pause_of_majority_us: Some(1_460_000),
        requests: 3,
        us: 1_610_000,
        renewing: 1,
        kept: 1,
        ..Verdict::default()
    };
    assert_eq!(round, expected);
    let late = verdict(&[lines[0], "601 driver 7001 demoted "]);
    assert!(late.is_void);
}

#[test]
fn a_new_primary_keeps_what_it_knows() {
    let knows = |ttl_ms: u64, to: u16, more: &str| {
        let knows = format!("111 driver 7002 knows a {ttl_ms} {more}");
        let send = format!("120 c2 {to} send LOCK.ACQUIRE k b 1000");
        let reply = format!("130 c2 {to} reply 200");
        let lines = ["110 driver 7002 promoted ", &knows, &send, &reply];
        let verdict = verdict(&[&FIRST[..], &lines].concat());
        (verdict.overlaps.len(), verdict.known.len())
    };
    assert_eq!(knows(800, 7002, "exclusive"), (1, 1));
    // By what it knows, the hold has ended; or the old primary has granted the other one.
    assert_eq!(knows(10, 7002, "exclusive"), (1, 0));
    assert_eq!(knows(800, 7001, "exclusive"), (1, 0));
    assert_eq!(knows(800, 7002, "shared"), (1, 0));
}
