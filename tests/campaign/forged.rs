//! Forged records for the judges of waits and holds: each refuses some, and lets a good one pass.

use super::holds::holds;
use super::journal::{read, Line};
use super::requests::{Finding, History};
use super::waits::{fairness, liveness};

/// Lines of `at who to what text`, times in milliseconds.
pub fn lines(lines: &[&str]) -> Vec<Line> {
    let line = |line: &&str| {
        let mut words = line.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (at, who, to, what, text) = (word(), word(), word(), word(), word());
        format!("{{\"at\":{at}000,\"who\":\"{who}\",\"to\":{to},\"what\":\"{what}\",\"text\":{text:?}}}\n")
    };
    let text: String = lines.iter().map(line).collect();
    read(&text)
}

/// What a judge finds in a record with these parts.
#[track_caller]
fn finds(judge: fn(&History<'_>) -> Vec<Finding>, expected: usize, parts: &[&[&str]]) {
    let lines = lines(&parts.concat());
    let found = judge(&History::of(&lines));
    assert_eq!(found.len(), expected, "{found:?}");
}

/// `a` holds until 300.
const HELD: [&str; 4] = [
    "10 c1 7001 send LOCK.ACQUIRE k a 1000",
    "11 c1 7001 reply 100",
    "300 c1 7001 send LOCK.RELEASE k a",
    "301 c1 7001 reply 1",
];

const FIRST: &str = "20 c2 7001 send LOCK.ACQUIRE k b 1000 BLOCK 900";
const SEEN: &str = "50 watcher 7001 queued k b";
const LATER: &str = "60 c3 7001 send LOCK.ACQUIRE k c 1000 BLOCK 900";

#[test]
fn whoever_is_queued_first_is_granted_first() {
    let in_order = ["302 c2 7001 reply 200", "500 c3 7001 reply 201"];
    finds(fairness, 0, &[&HELD, &[FIRST, SEEN, LATER], &in_order]);
    let passed = ["302 c3 7001 reply 200", "500 c2 7001 reply 201"];
    finds(fairness, 1, &[&HELD, &[FIRST, SEEN, LATER], &passed]);
    // Nobody has seen it in the queue.
    finds(fairness, 0, &[&HELD, &[FIRST, LATER], &passed]);
    // Both were seen, in that order.
    let both = ["70 watcher 7001 queued k b c"];
    finds(fairness, 1, &[&HELD, &[FIRST, LATER], &both, &passed]);
    let turned = ["70 watcher 7001 queued k c b"];
    finds(fairness, 0, &[&HELD, &[FIRST, LATER], &turned, &passed]);
}

#[test]
fn nobody_passes_somebody_who_gets_nothing() {
    let in_vain = ["400 c3 7001 reply 200", "921 c2 7001 reply nil"];
    finds(fairness, 1, &[&HELD, &[FIRST, SEEN, LATER], &in_vain]);
    // The clock of the server may be faster, by less than a hundredth.
    let at_its_end = ["915 c3 7001 reply 200", "916 c2 7001 reply nil"];
    finds(fairness, 0, &[&HELD, &[FIRST, SEEN, LATER], &at_its_end]);
    let gone = ["400 c2 7001 reply lost", "401 c3 7001 reply 200"];
    finds(fairness, 0, &[&HELD, &[FIRST, SEEN, LATER], &gone]);
    // A reader does not pass a writer that waits.
    let reader = ["60 c3 7001 send RWLOCK.RLOCK k c 1000 BLOCK 900"];
    finds(fairness, 1, &[&HELD, &[FIRST, SEEN], &reader, &in_vain]);
    // Another lock, another server.
    let other_lock = ["60 c3 7001 send LOCK.ACQUIRE k2 c 1000"];
    finds(fairness, 0, &[&HELD, &[FIRST, SEEN], &other_lock, &in_vain]);
    let other_server = ["60 c3 7002 send LOCK.ACQUIRE k c 1000"];
    finds(
        fairness,
        0,
        &[&HELD, &[FIRST, SEEN], &other_server, &in_vain],
    );
}

#[test]
fn a_holder_that_asks_for_more_goes_ahead() {
    let upgrade = [
        "12 c1 7001 send RWLOCK.RLOCK k a 1000",
        "13 c1 7001 reply 100",
        FIRST,
        SEEN,
        "60 c1 7001 send LOCK.ACQUIRE k a 1000",
        "61 c1 7001 reply 100",
        "921 c2 7001 reply nil",
    ];
    finds(fairness, 0, &[&HELD[..2], &upgrade]);
}

/// The server answers others in time.
const PROMPT: [&str; 6] = [
    "1000 c9 7001 send LOCK.CHECK q z",
    "1001 c9 7001 reply nil",
    "1100 c9 7001 send LOCK.CHECK q z",
    "1101 c9 7001 reply nil",
    "1200 c9 7001 send LOCK.CHECK q z",
    "1201 c9 7001 reply nil",
];

const OVER: &str = "3000 driver 0 over ";

#[test]
fn an_answer_comes_when_its_time_is_over() {
    let in_time = "920 c2 7001 reply nil";
    finds(liveness, 0, &[&HELD[..2], &[FIRST, in_time], &PROMPT]);
    let late = "2100 c2 7001 reply nil";
    finds(liveness, 1, &[&HELD[..2], &[FIRST, late], &PROMPT]);
    // The client has given it up.
    let lost = "2100 c2 7001 reply lost";
    finds(liveness, 1, &[&HELD[..2], &[FIRST, lost], &PROMPT]);
    // It never comes.
    finds(liveness, 1, &[&HELD[..2], &[FIRST, OVER], &PROMPT]);
    // The server has stood still.
    finds(liveness, 0, &[&HELD[..2], &[FIRST, late]]);
    let stop = "700 driver 7001 stop ";
    finds(liveness, 0, &[&HELD[..2], &[FIRST, stop, late], &PROMPT]);
}

#[test]
fn no_lock_stays_free_while_somebody_waits() {
    let wait = [
        "20 c2 7001 send LOCK.ACQUIRE k b 1000 BLOCK 2000",
        "1400 c2 7001 reply 200",
    ];
    finds(liveness, 1, &[&HELD, &wait, &PROMPT]);
    let other = [
        "302 c3 7001 send LOCK.ACQUIRE k c 1000",
        "303 c3 7001 reply 150",
    ];
    finds(liveness, 0, &[&HELD, &other, &wait, &PROMPT]);
    // The one that may have got it has gone before it could.
    let gone = [
        "30 c3 7001 send LOCK.ACQUIRE k c 1500 BLOCK 900",
        "100 c3 7001 reply lost",
    ];
    finds(liveness, 1, &[&HELD, &gone, &wait, &PROMPT]);
    // It may have got it in time.
    let late = [
        "30 c3 7001 send LOCK.ACQUIRE k c 1500 BLOCK 900",
        "200 c3 7001 reply lost",
    ];
    finds(liveness, 0, &[&HELD, &late, &wait, &PROMPT]);
    let round = ["0 driver 0 round mode=quorum guarded=true"];
    finds(liveness, 0, &[&round, &HELD, &wait, &PROMPT]);
}

#[test]
fn after_the_faults_locks_are_granted_again() {
    let faults = ["400 driver 7001 kill ", "500 driver 7002 promoted "];
    let quiet = ["600 driver 0 quiet "];
    let waits = [
        "610 c2 7002 send LOCK.ACQUIRE k b 1000 BLOCK 2000",
        "1900 c2 7002 reply 200",
    ];
    let prompt = PROMPT.map(|line| line.replace("7001", "7002"));
    let prompt = prompt.each_ref().map(String::as_str);
    let first_grant = [
        "620 c4 7002 send LOCK.ACQUIRE k4 d 1000",
        "621 c4 7002 reply 180",
    ];
    let all = [&HELD[..], &faults, &quiet, &waits, &prompt];
    // The first grant may be this one: its guard may have lasted.
    finds(liveness, 0, &all);
    finds(liveness, 1, &[&all.concat(), &first_grant]);
}

#[test]
fn a_hold_lasts_until_its_time_is_over() {
    let renew = |at: u64, reply: &str| {
        let send = format!("{at} c1 7001 send LOCK.RENEW k a 1000");
        [send, format!("{} c1 7001 reply {reply}", at + 1)]
    };
    let check = |renew: [String; 2], expected| {
        let renew = renew.each_ref().map(String::as_str);
        finds(holds, expected, &[&HELD[..2], &renew]);
    };
    check(renew(500, "1"), 0);
    check(renew(500, "0"), 1);
    check(renew(500, "TRYAGAIN wait"), 0);
    // The deadline is somewhere in between.
    check(renew(1_005, "0"), 0);
    check(renew(1_005, "1"), 0);
    check(renew(1_100, "0"), 0);
    check(renew(1_100, "1"), 1);
}

#[test]
fn a_hold_that_has_ended_is_of_no_use() {
    let uses = |line: &str, reply: &str| {
        let send = format!("400 c1 7001 send {line}");
        let reply = format!("401 c1 7001 reply {reply}");
        let more = [&send[..], &reply[..]];
        let lines = lines(&[&HELD[..], &more].concat());
        holds(&History::of(&lines)).len()
    };
    let refused = [
        uses("LOCK.CHECK k a", "nil"),
        uses("LOCK.RENEW k a 1000", "0"),
        uses("LOCK.RELEASE k a", "0"),
        uses("LOCK.EXEC k a INCR n", "NOTHELD no"),
    ];
    assert_eq!(refused, [0; 4]);
    let obeyed = [
        uses("LOCK.CHECK k a", "100"),
        uses("LOCK.RENEW k a 1000", "1"),
        uses("LOCK.RELEASE k a", "1"),
        uses("LOCK.EXEC k a INCR n", "7"),
    ];
    assert_eq!(obeyed, [1; 4]);
    assert_eq!(uses("LOCK.ACQUIRE k a 1000", "200"), 0);
}

#[test]
fn a_fault_may_end_a_hold_and_forget_an_end() {
    let fault = ["350 driver 7002 promoted "];
    let obeyed = ["400 c1 7001 send LOCK.CHECK k a", "401 c1 7001 reply 100"];
    finds(holds, 0, &[&HELD, &fault, &obeyed]);
    let lost = [
        "500 c1 7001 send LOCK.RENEW k a 1000",
        "501 c1 7001 reply 0",
    ];
    finds(holds, 0, &[&HELD[..2], &fault, &lost]);
    // In its last second it may be released, and nothing else.
    let released = [
        "600 c1 7002 send LOCK.RENEW k a 1000",
        "601 c1 7002 reply 0",
        "602 c1 7002 send LOCK.RELEASE k a",
        "603 c1 7002 reply 1",
    ];
    finds(holds, 0, &[&HELD[..2], &fault, &released]);
    let without_fault = released.map(|line| line.replace("7002", "7001"));
    let without_fault = without_fault.each_ref().map(String::as_str);
    finds(holds, 1, &[&HELD[..2], &without_fault]);
    // Another server knows nothing of it.
    let elsewhere = [
        "500 c1 7002 send LOCK.RENEW k a 1000",
        "501 c1 7002 reply 0",
    ];
    finds(holds, 0, &[&HELD[..2], &elsewhere]);
}
