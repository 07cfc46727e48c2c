//! Permits in the queue: their order, their deadlines, KEEP and NOTIFY.

use std::time::{Duration, Instant};

use super::fixture::{permit, until_fences_follow_the_clock};
use crate::harness::{wait_for, Kind, Later, Server};
use crate::places::fixture::{leaves_place, within};

on_every_server![
    the_earliest_deadline_wakes_a_permit,
    deadlines_let_permits_in_one_by_one,
    an_absent_permit_costs_its_grace_at_most,
    absent_permits_fill_the_limit,
    a_permit_may_resume_with_another_limit,
    a_lost_grant_of_a_permit_goes_to_the_next,
];

fn blocks(server: &Server, token: &str, limit: i64) -> Later {
    server.blocked(&format!(
        "LOCK.ACQUIRE k {token} 60000 LIMIT {limit} BLOCK 0"
    ))
}

fn the_earliest_deadline_wakes_a_permit(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    within("the earliest deadline", [100, 180], || {
        c.call("DEL k");
        let start = Instant::now();
        c.int("LOCK.ACQUIRE k a 60000 LIMIT 3");
        c.int("LOCK.ACQUIRE k b 100 LIMIT 3");
        c.int("LOCK.ACQUIRE k d 30000 LIMIT 3");
        let waiter = blocks(&server, "e", 3);
        let (fence, at) = waiter.reply_and_instant();
        assert!(fence.as_int() > 0);
        assert_eq!(c.holders("k"), ["a", "d", "e"]);
        at - start
    });
}

fn deadlines_let_permits_in_one_by_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    until_fences_follow_the_clock(&mut c);
    for (token, ttl) in [("a", 1300), ("b", 1000), ("d", 1600)] {
        c.int(&format!("LOCK.ACQUIRE k {token} {ttl} LIMIT 3"));
    }
    let [e, f, g] = ["e", "f", "g"].map(|token| blocks(&server, token, 3));
    let ends: Vec<_> = [e, f, g]
        .map(Later::reply_and_instant)
        .into_iter()
        .collect();
    assert!(ends.is_sorted_by_key(|(_, at)| *at));
    assert!(ends.is_sorted_by_key(|(fence, _)| fence.as_int()));
    // The grants were at the deadlines of b, a and d, each after the one before.
    let fences: Vec<_> = ends.iter().map(|(fence, _)| fence.as_int()).collect();
    assert!(fences[2] - fences[0] >= 500_000, "{fences:?}");
    assert_eq!(c.holders("k"), ["e", "f", "g"]);
}

fn an_absent_permit_costs_its_grace_at_most(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    within("the grace", [100, 180], || {
        c.call("DEL k");
        permit(&mut c, "k", "x", 2);
        permit(&mut c, "k", "y", 2);
        let start = Instant::now();
        leaves_place(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2 KEEP 100");
        let next = blocks(&server, "b", 2);
        c.int("LOCK.RELEASE k x");
        let (fence, at) = next.reply_and_instant();
        assert!(fence.as_int() > 0);
        at - start
    });
    assert!(c.info("lock_passed_over").parse::<u64>().unwrap() > 0);
}

fn absent_permits_fill_the_limit(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k w 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 3 KEEP 600000");
    leaves_place(&mut c, "RWLOCK.RLOCK k b 60000 KEEP 600000");
    leaves_place(&mut c, "LOCK.ACQUIRE k d 60000 LIMIT 3 KEEP 600000");
    let behind = blocks(&server, "e", 9);
    c.int("LOCK.RELEASE k w");
    assert!(
        behind.is_pending(),
        "three are absent, and two tolerate three"
    );
    // Whoever of them comes is granted at once, in any order.
    for line in [
        "LOCK.ACQUIRE k d 60000 LIMIT 3",
        "RWLOCK.RLOCK k b 60000",
        "LOCK.ACQUIRE k a 60000 LIMIT 3",
    ] {
        assert!(c.int(line) > 0);
        assert!(behind.is_pending());
    }
    assert_eq!(c.waiters("k"), ["e"]);
    c.int("LOCK.RELEASE k b");
    behind.fence();
}

fn a_permit_may_resume_with_another_limit(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["x", "y"] {
        permit(&mut c, "k", token, 9);
    }
    leaves_place(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2 KEEP 600000");
    let behind = blocks(&server, "b", 9);
    // Its later words count: it fits now, and so does the next one.
    permit(&mut c, "k", "a", 9);
    behind.fence();
    assert_eq!(c.holders("k"), ["x", "y", "a", "b"]);
    leaves_place(&mut c, "LOCK.ACQUIRE k d 60000 LIMIT 2 KEEP 600000");
    let resumed = server.blocked("LOCK.ACQUIRE k d 60000 LIMIT 4 BLOCK 0 KEEP 600000");
    c.int("LOCK.RELEASE k x");
    resumed.fence();
}

fn a_lost_grant_of_a_permit_goes_to_the_next(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["x", "y"] {
        permit(&mut c, "k", token, 2);
    }
    let [b, d] = ["b", "d"].map(|token| blocks(&server, token, 2));
    c.multi(&["LOCK.RELEASE k x", &format!("CLIENT KILL ID {}", b.id)]);
    b.broken();
    d.fence();
    let start = Instant::now();
    wait_for("some turns of the server's loop", || {
        assert_eq!(c.holders("k"), ["y", "d"]);
        (start.elapsed() > Duration::from_millis(20)).then_some(())
    });
    assert_eq!(c.info("lock_taken_back"), "1");
}
