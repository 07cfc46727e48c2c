//! A client that closes its connection at the moment of a release. The server is busy during both,
//! so it handles them in one turn of its loop, in their order. With LINGER it does not matter
//! whether the server has written the reply by then. No hold here lasts less than a minute.

use crate::harness::{wait_for, Kind, Server};

on_every_server![
    a_waiter_closed_before_or_after_the_release_is_passed_over,
    a_waiter_closed_at_a_rename_is_passed_over,
    a_frozen_server_drops_a_queue_that_closed_with_its_holder,
    one_of_two_waiters_with_one_token_closes_and_the_hold_stays,
    a_waiter_that_stays_is_granted,
];

/// Runs `act` while the server is busy and reads nothing.
fn while_frozen(server: &Server, act: impl FnOnce()) {
    let _sleeper = server.sleeps("0.5");
    act();
}

fn a_waiter_closed_before_or_after_the_release_is_passed_over(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut holder) = (server.client(), server.raw());
    for (is_stopped, is_closed_first) in
        [(false, true), (false, false), (true, true), (true, false)]
    {
        c.int("LOCK.ACQUIRE k a 60000");
        let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 LINGER 0");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let both = || {
            if is_closed_first {
                drop(b);
                holder.send("LOCK.RELEASE k a");
            } else {
                holder.send("LOCK.RELEASE k a");
                drop(b);
            }
        };
        if is_stopped {
            // Both are there when the server polls.
            server.signal("STOP");
            both();
            server.signal("CONT");
        } else {
            while_frozen(&server, both);
        }
        assert_eq!(holder.line().unwrap(), ":1");
        d.fence();
        assert_eq!(c.holders("k"), ["d"]);
        c.int("LOCK.RELEASE k d");
    }
}

fn a_waiter_closed_at_a_rename_is_passed_over(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut holder) = (server.client(), server.raw());
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    // The grant comes from the timer, which runs after everything has been read.
    while_frozen(&server, || {
        holder.send("RENAME k elsewhere");
        drop(b);
    });
    assert_eq!(holder.line().unwrap(), "+OK");
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(c.holders("elsewhere"), ["a"]);
}

fn a_frozen_server_drops_a_queue_that_closed_with_its_holder(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut holder) = (server.client(), server.raw());
    c.int("RWLOCK.WLOCK k a 60000");
    let line = |n: i32| match n % 3 {
        0 => format!("RWLOCK.WLOCK k w{n} 60000 BLOCK 0 LINGER 0"),
        _ => format!("RWLOCK.RLOCK k r{n} 60000 BLOCK 0 LINGER 0"),
    };
    let mut queue: Vec<_> = (0..9).map(|n| server.raw_blocked(&line(n))).collect();
    let last = server.blocked("RWLOCK.WLOCK k last 60000 BLOCK 0");
    while_frozen(&server, || {
        queue.truncate(4);
        holder.send("LOCK.RELEASE k a");
        queue.clear();
    });
    last.fence();
    assert_eq!(c.holders("k"), ["last"]);
    assert_eq!(server.blocked_clients(), 0);
}

fn one_of_two_waiters_with_one_token_closes_and_the_hold_stays(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut holder) = (server.client(), server.raw());
    for first_stays in [true, false] {
        c.int("LOCK.ACQUIRE k a 60000");
        let line = "LOCK.ACQUIRE k twin 60000 BLOCK 0";
        let (one, two) = (server.raw_blocked(line), server.raw_blocked(line));
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let (mut stays, goes) = if first_stays { (one, two) } else { (two, one) };
        while_frozen(&server, || {
            holder.send("LOCK.RELEASE k a");
            drop(goes);
        });
        assert_eq!(holder.line().unwrap(), ":1");
        let fence = stays.line().unwrap();
        stays.send("LOCK.ACQUIRE k twin 60000");
        assert_eq!(stays.line().unwrap(), fence);
        assert!(d.is_pending());
        c.int("LOCK.RELEASE k twin");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}

fn a_waiter_that_stays_is_granted(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut holder) = (server.client(), server.raw());
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.raw_blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    while_frozen(&server, || {
        holder.send("LOCK.RELEASE k a");
        drop(d);
    });
    assert!(b.line().unwrap().starts_with(':'));
    assert_eq!(c.holders("k"), ["b"]);
    assert!(e.is_pending());
    // A delivered hold stays, whatever happens to the connection.
    let id = b.id;
    drop(b);
    let mut knows_b = || c.text("CLIENT LIST").contains(&format!("id={id} "));
    wait_for("b to be gone", || (!knows_b()).then_some(()));
    assert_eq!(c.holders("k"), ["b"]);
    assert!(e.is_pending());
}
