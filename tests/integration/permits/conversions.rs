//! A token that asks again with another limit, or for another kind of hold.

use super::fixture::{limit, mode, permit, refused};
use crate::harness::{Kind, Reply, Server};

on_every_server![
    wider_is_granted_at_once,
    narrower_is_granted_at_once_if_it_holds,
    narrower_waits_and_keeps_its_hold,
    narrower_goes_ahead_of_the_queue,
    two_that_narrow_to_limits_are_no_deadlock,
    two_that_narrow_to_exclusive_are_a_deadlock,
    a_reader_becomes_a_permit_and_back,
    a_writer_becomes_a_permit_and_lets_others_in,
];

fn wider_is_granted_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = permit(&mut c, "k", "a", 2);
    permit(&mut c, "k", "b", 9);
    refused(&mut c, "LOCK.ACQUIRE k c 60000 LIMIT 9");
    let waiter = server.blocked("LOCK.ACQUIRE k c 60000 LIMIT 3 BLOCK 0");
    assert_eq!(permit(&mut c, "k", "a", 9), fence);
    // The one that waits for room enters in the same step.
    waiter.fence();
    assert_eq!(limit(&mut c, "k"), Some(3));
    assert_eq!(c.holders("k"), ["a", "b", "c"]);
}

fn narrower_is_granted_at_once_if_it_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = permit(&mut c, "k", "a", 9);
    permit(&mut c, "k", "b", 9);
    assert_eq!(permit(&mut c, "k", "a", 2), fence);
    assert_eq!(limit(&mut c, "k"), Some(2));
    refused(&mut c, "LOCK.ACQUIRE k c 60000 LIMIT 9");
    refused(&mut c, "LOCK.ACQUIRE k a 60000");
    c.int("LOCK.RELEASE k b");
    assert_eq!(c.int("LOCK.ACQUIRE k a 60000"), fence);
    assert_eq!(mode(&mut c, "k"), "exclusive");
}

fn narrower_waits_and_keeps_its_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = permit(&mut c, "k", "a", 9);
    for token in ["b", "d"] {
        permit(&mut c, "k", token, 9);
    }
    refused(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2");
    refused(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2 BLOCK 20");
    assert_eq!(limit(&mut c, "k"), Some(9), "nothing has changed");
    let narrows = server.blocked("LOCK.ACQUIRE k a 60000 LIMIT 2 BLOCK 0");
    assert_eq!(c.int("LOCK.CHECK k a"), fence);
    let waiter = c.call("LOCK.INFO k").field("waiters").items()[0].clone();
    assert_eq!(waiter.field("limit"), Reply::Int(2));
    // Nobody enters meanwhile.
    refused(&mut c, "LOCK.ACQUIRE k e 60000 LIMIT 9");
    c.int("LOCK.RELEASE k d");
    assert_eq!(narrows.fence(), fence);
    assert_eq!(limit(&mut c, "k"), Some(2));
    assert_eq!(c.holders("k"), ["a", "b"]);
}

fn narrower_goes_ahead_of_the_queue(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = permit(&mut c, "k", "a", 3);
    for token in ["b", "d"] {
        permit(&mut c, "k", token, 3);
    }
    let first = server.blocked("LOCK.ACQUIRE k e 60000 LIMIT 3 BLOCK 0");
    let narrows = server.blocked("LOCK.ACQUIRE k a 60000 LIMIT 2 BLOCK 0");
    assert_eq!(c.waiters("k"), ["a", "e"]);
    c.int("LOCK.RELEASE k b");
    assert_eq!(narrows.fence(), fence);
    assert!(first.is_pending(), "two hold, and one tolerates two");
    c.int("LOCK.RELEASE k d");
    first.fence();
}

fn two_that_narrow_to_limits_are_no_deadlock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for token in ["a", "b", "d", "e"] {
        permit(&mut c, "k", token, 9);
    }
    let to_two = server.blocked("LOCK.ACQUIRE k a 60000 LIMIT 2 BLOCK 0");
    let to_three = server.blocked("LOCK.ACQUIRE k b 60000 LIMIT 3 BLOCK 0");
    // The wider one can be granted first, although it came later.
    c.int("LOCK.RELEASE k d");
    to_three.fence();
    assert!(to_two.is_pending());
    c.int("LOCK.RELEASE k e");
    to_two.fence();
    assert_eq!(c.holders("k"), ["a", "b"]);
    assert_eq!(c.info("lock_deadlocks"), "0");
    // One of two may ask to become exclusive: the other one leaves.
    permit(&mut c, "k", "a", 9);
    let exclusive = server.blocked("LOCK.ACQUIRE k a 60000 BLOCK 0");
    assert!(permit(&mut c, "k", "b", 2) > 0);
    c.int("LOCK.RELEASE k b");
    exclusive.fence();
    assert_eq!(mode(&mut c, "k"), "exclusive");
}

fn two_that_narrow_to_exclusive_are_a_deadlock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = permit(&mut c, "k", "a", 9);
    for token in ["b", "d"] {
        permit(&mut c, "k", token, 9);
    }
    let first = server.blocked("LOCK.ACQUIRE k a 60000 LIMIT 1 BLOCK 0");
    for options in ["", " LIMIT 1", " BLOCK 5000"] {
        let error = c.error(&format!("LOCK.ACQUIRE k b 60000{options}"));
        assert!(error.starts_with("DEADLOCK "), "{options}: {error}");
    }
    assert_eq!(c.info("lock_deadlocks"), "3");
    assert_eq!(c.holders("k"), ["a", "b", "d"]);
    // One with a limit is none.
    let to_two = server.blocked("LOCK.ACQUIRE k d 60000 LIMIT 2 BLOCK 0");
    c.int("LOCK.RELEASE k b");
    to_two.fence();
    assert!(first.is_pending());
    c.int("LOCK.RELEASE k d");
    assert_eq!(first.fence(), fence);
}

fn a_reader_becomes_a_permit_and_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k a 60000");
    c.int("RWLOCK.RLOCK k b 60000");
    assert_eq!(permit(&mut c, "k", "a", 2), fence);
    assert_eq!(limit(&mut c, "k"), Some(2));
    refused(&mut c, "RWLOCK.RLOCK k d 60000");
    assert_eq!(c.int("RWLOCK.RLOCK k a 60000"), fence);
    assert_eq!(mode(&mut c, "k"), "shared");
    c.int("RWLOCK.RLOCK k d 60000");
    refused(&mut c, "LOCK.ACQUIRE k a 60000 LIMIT 2");
    assert_eq!(permit(&mut c, "k", "a", 3), fence);
}

fn a_writer_becomes_a_permit_and_lets_others_in(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.ACQUIRE k w 60000");
    let waiters = ["a", "b", "d"]
        .map(|token| server.blocked(&format!("LOCK.ACQUIRE k {token} 60000 LIMIT 3 BLOCK 0")));
    assert_eq!(permit(&mut c, "k", "w", 4), fence);
    let [a, b, d] = waiters;
    a.fence();
    b.fence();
    assert!(d.is_pending(), "the three of them tolerate three");
    assert_eq!(c.holders("k"), ["w", "a", "b"]);
    assert_eq!(limit(&mut c, "k"), Some(3));
}
