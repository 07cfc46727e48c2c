//! Permits in the queue: their order, their deadlines, KEEP and NOTIFY.

use std::time::{Duration, Instant};

use super::fixture::{mode, permit, refused, until_fences_follow_the_clock};
use crate::harness::{wait_for, Kind, Later, Reply, Server};
use crate::places::fixture::{leaves_place, queued, until_gone, within, Subscriber};

on_every_server![
    as_many_enter_as_there_is_room_for,
    a_writer_in_the_queue_drains_the_holders,
    permits_readers_and_writers_stand_in_one_line,
    nobody_passes_one_that_does_not_fit,
    the_earliest_deadline_wakes_a_permit,
    deadlines_let_permits_in_one_by_one,
    a_permit_that_leaves_the_queue_is_not_granted,
    a_permit_that_times_out_lets_others_in,
    an_absent_permit_takes_one,
    an_absent_permit_costs_its_grace_at_most,
    an_absent_permit_keeps_a_writer_out,
    absent_permits_fill_the_limit,
    a_permit_may_resume_with_another_limit,
    grants_of_permits_are_published,
    a_lost_grant_of_a_permit_goes_to_the_next,
];

fn blocks(server: &Server, token: &str, limit: i64) -> Later {
    server.blocked(&format!(
        "LOCK.ACQUIRE k {token} 60000 LIMIT {limit} BLOCK 0"
    ))
}

fn as_many_enter_as_there_is_room_for(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k w 60000");
    let [a, b, d, e, f] = ["a", "b", "d", "e", "f"].map(|token| blocks(&server, token, 3));
    c.int("LOCK.RELEASE k w");
    let fences = [a, b, d].map(Later::fence);
    assert!(fences.is_sorted(), "{fences:?}");
    assert!(e.is_pending() && f.is_pending());
    assert_eq!(c.holders("k"), ["a", "b", "d"]);
    // Each that leaves lets one in.
    c.int("LOCK.RELEASE k b");
    e.fence();
    assert!(f.is_pending());
    c.int("LOCK.RELEASE k a");
    f.fence();
}

fn a_writer_in_the_queue_drains_the_holders(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["a", "b"] {
        permit(&mut c, "k", token, 9);
    }
    let writer = server.blocked("LOCK.ACQUIRE k w 60000 BLOCK 0");
    // There is room, and yet nobody passes the writer.
    refused(&mut c, "LOCK.ACQUIRE k d 60000 LIMIT 9");
    let behind = blocks(&server, "d", 9);
    // Those that hold may ask again.
    permit(&mut c, "k", "a", 9);
    c.int("LOCK.RELEASE k a");
    assert!(writer.is_pending() && behind.is_pending());
    c.int("LOCK.RELEASE k b");
    let fence = writer.fence();
    assert!(behind.is_pending());
    c.int("LOCK.RELEASE k w");
    assert!(behind.fence() > fence);
}

fn permits_readers_and_writers_stand_in_one_line(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k w 60000");
    let p1 = blocks(&server, "p1", 2);
    let r1 = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
    let p2 = blocks(&server, "p2", 2);
    let w2 = server.blocked("RWLOCK.WLOCK k w2 60000 BLOCK 0");
    let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    let p3 = blocks(&server, "p3", 2);
    assert_eq!(c.waiters("k"), ["p1", "r1", "p2", "w2", "r2", "p3"]);
    c.int("LOCK.RELEASE k w");
    p1.fence();
    r1.fence();
    assert_eq!(c.holders("k"), ["p1", "r1"]);
    c.int("LOCK.RELEASE k p1");
    p2.fence();
    assert_eq!(c.holders("k"), ["r1", "p2"]);
    c.int("LOCK.RELEASE k r1");
    assert!(w2.is_pending());
    c.int("LOCK.RELEASE k p2");
    w2.fence();
    assert!(r2.is_pending());
    c.int("LOCK.RELEASE k w2");
    r2.fence();
    p3.fence();
    assert_eq!(c.holders("k"), ["r2", "p3"]);
}

fn nobody_passes_one_that_does_not_fit(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for reader in ["x", "y"] {
        c.int(&format!("RWLOCK.RLOCK k {reader} 60000"));
    }
    let narrow = blocks(&server, "p", 2);
    // Each of these would fit.
    refused(&mut c, "RWLOCK.RLOCK k z 60000");
    let reader = server.blocked("RWLOCK.RLOCK k z 60000 BLOCK 0");
    let wide = blocks(&server, "q", 9);
    c.int("LOCK.RELEASE k x");
    narrow.fence();
    assert!(reader.is_pending() && wide.is_pending());
    c.int("LOCK.RELEASE k p");
    reader.fence();
    wide.fence();
    assert_eq!(c.holders("k"), ["y", "z", "q"]);
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

fn a_permit_that_leaves_the_queue_is_not_granted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    permit(&mut c, "k", "a", 1);
    let [b, d, e] = ["b", "d", "e"].map(|token| blocks(&server, token, 2));
    c.int(&format!("CLIENT KILL ID {}", b.id));
    b.broken();
    until_gone(&mut c, "k", "b");
    assert_eq!(c.int("LOCK.RELEASE k d"), 0);
    assert_eq!(d.reply(), Reply::Nil);
    c.int("LOCK.RELEASE k a");
    e.fence();
    assert_eq!(c.holders("k"), ["e"]);
}

fn a_permit_that_times_out_lets_others_in(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["a", "b", "d"] {
        permit(&mut c, "k", token, 9);
    }
    // It does not fit, and stops those that do.
    let narrow = server.blocked("LOCK.ACQUIRE k n 60000 LIMIT 2 BLOCK 500");
    let wide = blocks(&server, "e", 9);
    assert_eq!(narrow.reply(), Reply::Nil);
    wide.fence();
    assert_eq!(c.holders("k"), ["a", "b", "d", "e"]);
}

fn an_absent_permit_takes_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k w 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2 KEEP 600000");
    let [b, d] = ["b", "d"].map(|token| blocks(&server, token, 2));
    c.int("LOCK.RELEASE k w");
    // One permit is kept for the absent one. The next one enters beside it.
    b.fence();
    assert!(d.is_pending());
    assert_eq!(c.holders("k"), ["b"]);
    assert_eq!(c.waiters("k"), ["a", "d"]);
    refused(&mut c, "LOCK.ACQUIRE k e 60000 LIMIT 9");
    permit(&mut c, "k", "a", 2);
    assert!(d.is_pending());
    c.int("LOCK.RELEASE k a");
    d.fence();
    assert_eq!(c.holders("k"), ["b", "d"]);
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

fn an_absent_permit_keeps_a_writer_out(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k w 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2 KEEP 600000");
    let reader = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    let writer = server.blocked("LOCK.ACQUIRE k w2 60000 BLOCK 0");
    c.int("LOCK.RELEASE k w");
    reader.fence();
    c.int("LOCK.RELEASE k r");
    assert!(writer.is_pending());
    assert_eq!(mode(&mut c, "k"), "free");
    // It gives its place up.
    assert_eq!(c.int("LOCK.RELEASE k a"), 0);
    writer.fence();
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

fn grants_of_permits_are_published(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k w 60000");
    for token in ["a", "b", "d"] {
        queued(
            &mut c,
            &format!("LOCK.ACQUIRE k {token} 60000 LIMIT 2 NOTIFY 0 c"),
        );
    }
    queued(&mut c, "LOCK.ACQUIRE k e 60000 LIMIT 2 NOTIFY 30 c");
    assert_eq!(sub.text(), "timeout 0 1 k e");
    c.int("LOCK.RELEASE k w");
    let fences = [sub.fence("k", "a"), sub.fence("k", "b")];
    assert_eq!(sub.so_far(), [""; 0]);
    assert_eq!(permit(&mut c, "k", "a", 2), fences[0]);
    c.int("LOCK.RELEASE k b");
    assert!(sub.fence("k", "d") > fences[1]);
    // A conversion that waits is published, too.
    queued(&mut c, "LOCK.ACQUIRE k a 60000 NOTIFY 0 c");
    c.int("LOCK.RELEASE k d");
    assert_eq!(sub.fence("k", "a"), fences[0]);
    assert_eq!(mode(&mut c, "k"), "exclusive");
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
