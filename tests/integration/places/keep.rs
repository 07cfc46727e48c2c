//! KEEP: a request that ends without a grant leaves its place in the queue.

use std::time::{Duration, Instant};

use super::fixture::{find_place, leaves_place, mode, place, until_absent, until_gone, within};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_closed_connection_leaves_its_place,
    client_unblock_leaves_the_place_where_it_is_safe,
    the_grace_counts_from_the_moment_when_the_last_listener_left,
];

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
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 400");
    let start = Instant::now();
    wait_for("more than the grace", || {
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 400");
        (start.elapsed() > Duration::from_millis(500)).then_some(())
    });
    assert!(place(&mut c, "k", "b").waited_ms >= 500);
}
