//! KEEP: a request that ends without a grant leaves its place in the queue.

use std::time::{Duration, Instant};

use super::fixture::{
    find_place, leaves_place, mode, place, places, until_absent, until_gone, within, Listener,
};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_null_with_keep_leaves_a_place,
    a_null_without_keep_leaves_none,
    a_block_that_times_out_leaves_its_place,
    a_killed_client_leaves_its_place,
    a_closed_connection_leaves_its_place,
    client_unblock_leaves_the_place_where_it_is_safe,
    a_grant_that_was_lost_gives_the_place_back,
    a_lost_grant_that_the_token_releases_gives_no_place_back,
    the_grace_counts_from_the_moment_when_the_last_listener_left,
    every_command_that_takes_a_hold_keeps_a_place,
    a_grant_at_once_takes_no_place,
];

fn a_null_with_keep_leaves_a_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let start = Instant::now();
    assert_eq!(place(&mut c, "k", "b").mode, "exclusive");
    assert_eq!(mode(&mut c, "k"), "exclusive");
    // It waits, as the others do.
    wait_for("it to have waited", || {
        (place(&mut c, "k", "b").waited_ms >= 30).then_some(())
    });
    assert!(start.elapsed() >= Duration::from_millis(28));
    assert_eq!(server.blocked_clients(), 0);
    c.int("LOCK.RELEASE k a");
    // Nobody holds, and the lock is not free for others.
    assert_eq!(mode(&mut c, "k"), "free");
    assert!(c.holders("k").is_empty());
    assert_eq!(c.int("EXISTS k"), 0);
    assert_eq!(c.call("LOCK.ACQUIRE k other 60000"), Reply::Nil);
    assert_eq!(c.waiters("k"), ["b"]);
}

fn a_null_without_keep_leaves_none(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000"), Reply::Nil);
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000 BLOCK 1"), Reply::Nil);
    assert_eq!(places(&mut c, "k"), []);
    let killed = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.int(&format!("CLIENT KILL ID {}", killed.id));
    until_gone(&mut c, "k", "b");
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn a_block_that_times_out_leaves_its_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let start = Instant::now();
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 400 KEEP 60000");
    assert_eq!(place(&mut c, "k", "b").listener, Listener::Client(b.id));
    assert_eq!(b.reply(), Reply::Nil);
    assert!(start.elapsed() >= Duration::from_millis(400));
    let left = place(&mut c, "k", "b");
    assert!(left.is_absent());
    assert!(left.waited_ms >= 400, "since the place was taken: {left:?}");
    c.int("LOCK.RELEASE k a");
    assert_eq!(mode(&mut c, "k"), "free");
    c.int("LOCK.ACQUIRE k b 60000");
}

fn a_killed_client_leaves_its_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.int(&format!("CLIENT KILL ID {}", b.id));
    b.broken();
    until_absent(&mut c, "k", "b");
    assert_eq!(c.waiters("k"), ["b", "d"]);
    c.int("LOCK.RELEASE k a");
    assert!(d.is_pending());
    c.int("LOCK.ACQUIRE k b 60000");
    assert!(d.is_pending());
    c.int("LOCK.RELEASE k b");
    d.fence();
}

fn a_closed_connection_leaves_its_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    drop(b);
    until_absent(&mut c, "k", "b");
    assert_eq!(server.blocked_clients(), 0);
    c.int("LOCK.RELEASE k a");
    assert_eq!(mode(&mut c, "k"), "free");
    c.int("LOCK.ACQUIRE k b 60000");
}

fn client_unblock_leaves_the_place_where_it_is_safe(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for how in ["", " ERROR"] {
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
        let is_safe = !matches!(kind, Kind::Redis6_2 | Kind::Redis7_0);
        if !is_safe {
            assert_eq!(c.int(&format!("CLIENT UNBLOCK {}", b.id)), 0);
            assert!(b.is_pending());
            return;
        }
        assert_eq!(c.int(&format!("CLIENT UNBLOCK {}{how}", b.id)), 1);
        match b.reply() {
            Reply::Nil if how.is_empty() => {}
            Reply::Error(error) if !how.is_empty() => {
                assert!(error.starts_with("UNBLOCKED "), "{error}");
            }
            other => panic!("{how}: {other:?}"),
        }
        until_absent(&mut c, "k", "b");
    }
    c.int("LOCK.RELEASE k a");
    assert_eq!(mode(&mut c, "k"), "free");
    c.int("LOCK.ACQUIRE k b 60000");
}

fn a_grant_that_was_lost_gives_the_place_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    // Granted, and gone before the reply.
    c.multi(&["LOCK.RELEASE k a", &format!("CLIENT KILL ID {}", b.id)]);
    b.broken();
    wait_for("the grant to be taken back", || {
        (mode(&mut c, "k") == "free").then_some(())
    });
    assert!(place(&mut c, "k", "b").is_absent());
    assert_eq!(c.waiters("k"), ["b", "d"]);
    assert!(d.is_pending());
    c.int("LOCK.ACQUIRE k b 60000");
    c.int("LOCK.RELEASE k b");
    d.fence();
}

fn a_lost_grant_that_the_token_releases_gives_no_place_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    // Its owner gives up the hold that it has not heard of.
    let replies = c.multi(&[
        "LOCK.RELEASE k a",
        &format!("CLIENT KILL ID {}", b.id),
        "LOCK.RELEASE k b",
    ]);
    assert_eq!(replies[2], Reply::Int(1));
    b.broken();
    d.fence();
    let start = Instant::now();
    wait_for("some turns of the server's loop", || {
        assert_eq!(places(&mut c, "k"), []);
        (start.elapsed() > Duration::from_millis(30)).then_some(())
    });
    assert_eq!(c.holders("k"), ["d"]);
}

fn the_grace_counts_from_the_moment_when_the_last_listener_left(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    within("the grace after a null", [100, 200], || {
        let start = Instant::now();
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 100");
        until_gone(&mut c, "k", "b") - start
    });
    within("the grace after a timeout", [180, 280], || {
        let start = Instant::now();
        let b = server.later("LOCK.ACQUIRE k b 60000 BLOCK 80 KEEP 100");
        assert_eq!(b.reply(), Reply::Nil);
        until_gone(&mut c, "k", "b") - start
    });
    within("the grace after the second of two", [100, 200], || {
        let one = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 100");
        let two = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 100");
        c.int(&format!("CLIENT KILL ID {}", one.id));
        one.broken();
        let start = Instant::now();
        // Longer than the grace: the other one listens.
        wait_for("more than the grace", || {
            let still = find_place(&mut c, "k", "b").expect("its place");
            assert!(!still.is_absent());
            (start.elapsed() > Duration::from_millis(120)).then_some(())
        });
        let start = Instant::now();
        c.int(&format!("CLIENT KILL ID {}", two.id));
        two.broken();
        until_gone(&mut c, "k", "b") - start
    });
    // Each request begins the grace anew.
    let start = Instant::now();
    wait_for("more than the grace", || {
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 400");
        (start.elapsed() > Duration::from_millis(500)).then_some(())
    });
    assert!(place(&mut c, "k", "b").waited_ms >= 500);
}

fn every_command_that_takes_a_hold_keeps_a_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let lines = [
        ("LOCK.ACQUIRE", "b", "exclusive"),
        ("RWLOCK.WLOCK", "d", "exclusive"),
        ("RWLOCK.RLOCK", "e", "shared"),
    ];
    for (command, token, expected) in lines {
        leaves_place(&mut c, &format!("{command} k {token} 60000 keep 60000"));
        assert_eq!(place(&mut c, "k", token).mode, expected);
    }
    assert_eq!(c.waiters("k"), ["b", "d", "e"]);
}

fn a_grant_at_once_takes_no_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.ACQUIRE k a 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.ACQUIRE k a 60000 KEEP 60000 BLOCK 0"), fence);
    assert_eq!(c.waiters("k"), [""; 0]);
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}
