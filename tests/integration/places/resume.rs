//! A later request of a token joins its place, and continues at its position.

use std::time::{Duration, Instant};

use super::fixture::{
    leaves_place, mode, place, places, queued, until_absent, until_gone, within, Listener,
    Subscriber,
};
use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_later_request_continues_at_the_old_position,
    waited_counts_from_when_the_place_was_taken,
    it_continues_with_the_later_ttl,
    it_continues_with_the_later_mode,
    it_continues_with_the_later_grace,
    it_continues_with_the_later_listener,
    without_keep_the_place_ends_with_the_request,
    a_request_that_does_not_wait_changes_nothing_while_somebody_listens,
    two_requests_at_one_place_are_granted_together,
    a_second_request_does_not_move_the_place,
    a_poller_waits_as_fairly_as_blocked_clients,
    the_grace_of_the_hour_is_taken,
];

fn a_later_request_continues_at_the_old_position(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for slice in ["", " BLOCK 1"] {
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        leaves_place(&mut c, &format!("LOCK.ACQUIRE k b 60000{slice} KEEP 60000"));
        assert_eq!(c.waiters("k"), ["b", "d"]);
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        assert_eq!(c.waiters("k"), ["b", "d"]);
        c.int("LOCK.RELEASE k a");
        let fence = b.fence();
        assert!(d.is_pending());
        c.int("LOCK.RELEASE k b");
        assert!(d.fence() > fence);
        c.int("LOCK.RELEASE k d");
        c.int("LOCK.ACQUIRE k a 60000");
    }
}

fn waited_counts_from_when_the_place_was_taken(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let start = Instant::now();
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    wait_for("some time", || {
        (place(&mut c, "k", "b").waited_ms >= 50).then_some(())
    });
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let waited_ms = place(&mut c, "k", "b").waited_ms;
    let at_most_ms = i64::try_from(start.elapsed().as_millis()).unwrap() + 2;
    assert!((50..=at_most_ms).contains(&waited_ms), "{waited_ms}");
    drop(b);
}

fn it_continues_with_the_later_ttl(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for line in [
        "LOCK.ACQUIRE k b 5000 BLOCK 0 KEEP 60000",
        "LOCK.ACQUIRE k b 5000 BLOCK 0",
    ] {
        c.int("LOCK.ACQUIRE k a 60000");
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
        let b = server.blocked(line);
        c.int("LOCK.RELEASE k a");
        b.fence();
        assert!(c.int("PTTL k") <= 5_000);
        c.int("LOCK.RELEASE k b");
    }
}

fn it_continues_with_the_later_mode(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Weaker: the reader behind it enters beside it.
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k b 60000 KEEP 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let b = server.blocked("RWLOCK.RLOCK k b 60000 BLOCK 0 KEEP 60000");
    assert_eq!(place(&mut c, "k", "b").mode, "shared");
    assert_eq!(c.waiters("k"), ["b", "w"]);
    c.int("LOCK.RELEASE k a");
    b.fence();
    assert_eq!(mode(&mut c, "k"), "shared");
    assert!(w.is_pending());
    c.int("LOCK.RELEASE k b");
    w.fence();
    c.int("LOCK.RELEASE k w");
    // Stronger, without a listener: it keeps readers out now.
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "RWLOCK.RLOCK k b 60000 KEEP 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k b 60000 KEEP 60000");
    assert_eq!(place(&mut c, "k", "b").mode, "exclusive");
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("RWLOCK.RLOCK k r 60000"), Reply::Nil);
    // Weaker again: the reader may enter.
    leaves_weaker(&server, &mut c);
}

/// An absent writer that turns reader while a reader waits behind it.
fn leaves_weaker(server: &Server, c: &mut Client) {
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    assert!(r.is_pending());
    // Its turn has come, so it is granted.
    c.int("RWLOCK.RLOCK k b 60000 KEEP 60000");
    r.fence();
    c.int("LOCK.RELEASE k b");
    c.int("LOCK.RELEASE k r");
    // The same before its turn has come: behind a reader that holds.
    c.int("RWLOCK.RLOCK k r 60000");
    leaves_place(c, "RWLOCK.WLOCK k b 60000 KEEP 60000");
    let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    assert!(r2.is_pending());
    c.int("RWLOCK.RLOCK k b 60000 KEEP 60000");
    r2.fence();
    assert_eq!(c.holders("k"), ["r", "b", "r2"]);
}

fn it_continues_with_the_later_grace(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    within("the later grace", [80, 180], || {
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
        let start = Instant::now();
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 80");
        until_gone(&mut c, "k", "b") - start
    });
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 50");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let start = Instant::now();
    wait_for("the first grace", || {
        place(&mut c, "k", "b");
        (start.elapsed() > Duration::from_millis(80)).then_some(())
    });
}

fn it_continues_with_the_later_listener(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.int(&format!("CLIENT KILL ID {}", b.id));
    until_absent(&mut c, "k", "b");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    let channel = Listener::Channel("c".into());
    assert_eq!(place(&mut c, "k", "b").listener, channel);
    assert_eq!(c.waiters("k"), ["b", "d"]);
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "b");
    assert!(d.is_pending());
}

fn without_keep_the_place_ends_with_the_request(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let asks = [
        "LOCK.ACQUIRE k b 60000",
        "LOCK.ACQUIRE k b 60000 BLOCK 1",
        "RWLOCK.RLOCK k b 60000",
    ];
    for line in asks {
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
        assert_eq!(c.call(line), Reply::Nil);
        assert_eq!(places(&mut c, "k"), [], "{line}");
    }
    // A lost connection, too.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    drop(server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0"));
    until_gone(&mut c, "k", "b");
    // It asks again with KEEP, and begins at the end.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000"), Reply::Nil);
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    assert_eq!(c.waiters("k"), ["d", "b"]);
    // The end of the place lets the one behind it in.
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    d.fence();
    leaves_place(&mut c, "RWLOCK.RLOCK k r 60000 KEEP 60000");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    c.int("LOCK.RELEASE k d");
    assert!(e.is_pending(), "behind b and r");
    c.int("LOCK.RELEASE k b");
    assert!(e.is_pending(), "behind r");
    c.int("LOCK.RELEASE k r");
    e.fence();
}

fn a_request_that_does_not_wait_changes_nothing_while_somebody_listens(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for keep in ["", " KEEP 60000"] {
        let b = server.blocked(&format!("LOCK.ACQUIRE k b 60000 BLOCK 0{keep}"));
        let before = place(&mut c, "k", "b");
        for line in [
            "LOCK.ACQUIRE k b 60000",
            "LOCK.ACQUIRE k b 60000 KEEP 1",
            "RWLOCK.RLOCK k b 60000 KEEP 50",
        ] {
            assert_eq!(c.call(line), Reply::Nil, "{line}");
            let after = place(&mut c, "k", "b");
            assert_eq!(
                (&after.mode, &after.listener),
                (&before.mode, &before.listener)
            );
        }
        assert_eq!(c.waiters("k"), ["b"]);
        c.int(&format!("CLIENT KILL ID {}", b.id));
        b.broken();
        if keep.is_empty() {
            until_gone(&mut c, "k", "b");
        } else {
            until_absent(&mut c, "k", "b");
            // The grace is that of the one that listened.
            let start = Instant::now();
            wait_for("the other grace", || {
                place(&mut c, "k", "b");
                (start.elapsed() > Duration::from_millis(80)).then_some(())
            });
        }
    }
}

fn two_requests_at_one_place_are_granted_together(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    let one = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let two = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    // Each request is shown, and all of them stand together.
    assert_eq!(c.waiters("k"), ["b", "b", "b", "d"]);
    assert_eq!(c.info("lock_waiters"), "2");
    c.int("LOCK.RELEASE k a");
    let fence = one.fence();
    assert_eq!(two.fence(), fence);
    assert_eq!(sub.fence("k", "b"), fence);
    assert!(d.is_pending());
    assert_eq!(c.waiters("k"), ["d"]);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    d.fence();
    assert_eq!(sub.so_far(), [""; 0]);
}

fn a_second_request_does_not_move_the_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let again = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    assert_eq!(c.waiters("k"), ["b", "b", "d"]);
    // The first request leaves. The place is still the first one.
    c.int(&format!("CLIENT KILL ID {}", b.id));
    b.broken();
    wait_for("it to leave", || {
        (c.waiters("k") == ["b", "d"] && server.blocked_clients() == 2).then_some(())
    });
    c.int("LOCK.RELEASE k a");
    again.fence();
    assert!(d.is_pending());
}

fn a_poller_waits_as_fairly_as_blocked_clients(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let poll = "LOCK.ACQUIRE k poller 60000 KEEP 60000";
    let mut holder = "first".to_string();
    c.int("LOCK.ACQUIRE k first 60000");
    for round in 0..5 {
        let (before, behind) = (format!("before{round}"), format!("behind{round}"));
        let [ask_before, ask_behind] =
            [&before, &behind].map(|token| format!("LOCK.ACQUIRE k {token} 60000 BLOCK 0"));
        let first = server.blocked(&ask_before);
        leaves_place(&mut c, poll);
        let last = server.blocked(&ask_behind);
        c.int(&format!("LOCK.RELEASE k {holder}"));
        let fence = first.fence();
        leaves_place(&mut c, poll);
        assert_eq!(c.waiters("k"), ["poller", behind.as_str()]);
        c.int(&format!("LOCK.RELEASE k {before}"));
        assert!(last.is_pending(), "it came after the poller");
        assert!(c.int(poll) > fence);
        c.int("LOCK.RELEASE k poller");
        last.fence();
        holder = behind;
    }
}

fn the_grace_of_the_hour_is_taken(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 3600000");
    leaves_place(&mut c, "LOCK.ACQUIRE k d 60000 KEEP 1");
    until_gone(&mut c, "k", "d");
    assert_eq!(c.waiters("k"), ["b"]);
}
