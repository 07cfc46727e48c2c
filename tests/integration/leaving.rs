//! Every way to leave the queue without a grant: a client that leaves is never granted, and the
//! next ones are.

use std::time::{Duration, Instant};

use crate::harness::{wait_for, Client, Kind, Raw, Reply, Server};

mod delivered;
mod frozen;
mod limits;
mod many_clients;
mod moved_keys;
mod undelivered;

on_every_server![
    a_client_that_closes_its_connection_is_not_granted,
    a_killed_waiter_leaves_the_queue_at_once,
    client_unblock_ends_the_wait_where_that_is_safe,
    readers_are_granted_when_the_writer_before_them_leaves,
    readers_behind_a_second_writer_stay_when_the_first_leaves,
    a_waiting_upgrade_that_disconnects_keeps_its_shared_hold,
    a_client_that_is_evicted_is_not_granted,
    shutdown_does_not_wait_for_waiters,
    a_pipelined_quit_is_served_after_the_grant,
    a_hundred_timeouts_none_of_them_early,
];

/// Redis 7.4 and Valkey 8, where a timeout callback may coincide with a grant.
pub fn may_be_unblocked(kind: Kind) -> bool {
    kind.is_7_2_or_later()
}

fn a_client_that_closes_its_connection_is_not_granted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let held = c.int("LOCK.ACQUIRE k a 60000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(c.waiters("k"), ["b", "d"]);
    drop(b);
    wait_for("b to leave", || (c.waiters("k") == ["d"]).then_some(()));
    assert!(d.is_pending());
    assert_eq!(c.holders("k"), ["a"]);
    c.int("LOCK.RELEASE k a");
    assert!(d.fence() > held);
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(server.blocked_clients(), 0);
}

fn a_killed_waiter_leaves_the_queue_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", b.id)), 1);
    assert_eq!(c.waiters("k"), ["d"], "in the very next command");
    b.broken();
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", d.id)), 1);
    d.broken();
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    assert_eq!(c.int("EXISTS k"), 0);
}

fn client_unblock_ends_the_wait_where_that_is_safe(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    let error = c.int(&format!("CLIENT UNBLOCK {} ERROR", b.id));
    let timeout = c.int(&format!("CLIENT UNBLOCK {} TIMEOUT", d.id));
    if may_be_unblocked(kind) {
        assert_eq!((error, timeout), (1, 1));
        assert_eq!(c.waiters("k"), ["e"], "in the very next command");
        let (reply, mut b) = b.reply_and_client();
        assert_eq!(
            reply,
            Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into())
        );
        let (reply, mut d) = d.reply_and_client();
        assert_eq!(reply, Reply::Nil);
        // There is one reply each, no more: the next reply belongs to the next request.
        assert_eq!(b.text("ECHO still"), "still");
        assert_eq!(d.text("ECHO here"), "here");
        c.int("LOCK.RELEASE k a");
    } else {
        assert_eq!((error, timeout), (0, 0));
        assert_eq!(c.waiters("k"), ["b", "d", "e"]);
        assert!(b.is_pending() && d.is_pending());
        c.int("LOCK.RELEASE k a");
        b.fence();
        c.int("LOCK.RELEASE k b");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
    e.fence();
}

fn readers_are_granted_when_the_writer_before_them_leaves(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let kill: fn(&mut Client, &mut Raw) = |c, w| {
        assert_eq!(c.int(&format!("CLIENT KILL ID {}", w.id)), 1);
    };
    let close: fn(&mut Client, &mut Raw) = |_, w| w.leave();
    let time_out: fn(&mut Client, &mut Raw) = |_, w| assert_eq!(w.line().unwrap(), "$-1");
    let unblock_error: fn(&mut Client, &mut Raw) = |c, w| {
        assert_eq!(c.int(&format!("CLIENT UNBLOCK {} ERROR", w.id)), 1);
        assert!(w.line().unwrap().starts_with("-UNBLOCKED "));
    };
    let unblock_timeout: fn(&mut Client, &mut Raw) = |c, w| {
        assert_eq!(c.int(&format!("CLIENT UNBLOCK {} TIMEOUT", w.id)), 1);
        assert_eq!(w.line().unwrap(), "$-1");
    };
    let mut exits = vec![(kill, 0), (close, 0), (time_out, 700)];
    if may_be_unblocked(kind) {
        exits.extend([(unblock_error, 0), (unblock_timeout, 0)]);
    }
    for (exit, timeout) in exits {
        c.int("RWLOCK.RLOCK k r0 60000");
        let mut w = server.raw_blocked(&format!("RWLOCK.WLOCK k w 60000 BLOCK {timeout}"));
        let r1 = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
        let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
        exit(&mut c, &mut w);
        let (r1, r2) = (r1.fence(), r2.fence());
        assert!(r1 < r2);
        assert_eq!(c.holders("k"), ["r0", "r1", "r2"]);
        c.int("DEL k");
    }
}

fn readers_behind_a_second_writer_stay_when_the_first_leaves(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k r0 60000");
    let w1 = server.blocked("RWLOCK.WLOCK k w1 60000 BLOCK 0");
    let w2 = server.blocked("RWLOCK.WLOCK k w2 60000 BLOCK 0");
    let r1 = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
    c.int(&format!("CLIENT KILL ID {}", w1.id));
    w1.broken();
    // When this one has timed out, the server's timer has run since the kill.
    let mut w3 = server.raw_blocked("RWLOCK.WLOCK k w3 60000 BLOCK 50");
    assert_eq!(w3.line().unwrap(), "$-1");
    assert!(w2.is_pending() && r1.is_pending());
    c.int("LOCK.RELEASE k r0");
    w2.fence();
    assert!(r1.is_pending());
    c.int("LOCK.RELEASE k w2");
    r1.fence();
}

fn a_waiting_upgrade_that_disconnects_keeps_its_shared_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let share = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0");
    assert!(c
        .error("RWLOCK.WLOCK k other 60000 BLOCK 0")
        .starts_with("DEADLOCK "));
    c.int(&format!("CLIENT KILL ID {}", up.id));
    up.broken();
    assert_eq!(c.holders("k"), ["up", "other"]);
    assert_eq!(c.int("RWLOCK.RLOCK k up 60000"), share);
    // Nothing prevents the other's upgrade any more.
    let other = server.blocked("RWLOCK.WLOCK k other 60000 BLOCK 0");
    c.int("LOCK.RELEASE k up");
    other.fence();
}

fn a_client_that_is_evicted_is_not_granted(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return; // maxmemory-clients came with 7.0.
    }
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    // Data that a blocked client sends accumulates in its query buffer.
    b.send_bytes(&vec![b'x'; 4_000_000]);
    wait_for("b to be large", || {
        let list = c.text(&format!("CLIENT LIST ID {}", b.id));
        let memory = list
            .split_whitespace()
            .find_map(|word| word.strip_prefix("tot-mem="));
        (memory?.parse::<u64>().unwrap() > 4_000_000).then_some(())
    });
    c.call("CONFIG SET maxmemory-clients 2mb");
    wait_for("b to be evicted", || {
        (c.waiters("k") == ["d"]).then_some(())
    });
    assert_eq!(c.info("evicted_clients"), "1");
    assert_eq!(b.line(), None);
    c.int("LOCK.RELEASE k a");
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}

fn shutdown_does_not_wait_for_waiters(kind: Kind) {
    let mut server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("RWLOCK.RLOCK k d 60000 BLOCK 60000");
    let start = Instant::now();
    server.shut_down();
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    b.broken();
    d.broken();
    let log = server.log();
    assert!(log.contains("bye bye"), "{log}");
}

fn a_pipelined_quit_is_served_after_the_grant(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    b.send("QUIT");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(c.waiters("k"), ["b", "d"], "a blocked client reads no QUIT");
    c.int("LOCK.RELEASE k a");
    assert!(b.line().unwrap().starts_with(':'), "the grant comes first");
    assert_eq!(b.line().unwrap(), "+OK");
    assert_eq!(b.line(), None);
    assert_eq!(c.holders("k"), ["b"], "it was told, so the hold is its own");
    assert!(d.is_pending());
    c.int("LOCK.RELEASE k b");
    d.fence();
}

fn a_hundred_timeouts_none_of_them_early(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.ACQUIRE k a 60000");
    // Their ends are in another order than their starts.
    let waiters: Vec<_> = (0..100)
        .map(|n: u64| {
            let timeout = 40 + (n * 37) % 400;
            let start = Instant::now();
            let line = format!("LOCK.ACQUIRE k w{n} 60000 BLOCK {timeout}");
            (timeout, start, server.later(&line))
        })
        .collect();
    for (timeout, start, waiter) in waiters {
        let (reply, at) = waiter.reply_and_instant();
        assert_eq!(reply, Reply::Nil);
        let waited = at - start;
        assert!(
            waited >= Duration::from_millis(timeout),
            "{timeout} {waited:?}"
        );
    }
    assert_eq!(c.waiters("k"), [""; 0]);
    assert_eq!(c.int("LOCK.ACQUIRE k a 60000"), fence);
    assert_eq!(server.blocked_clients(), 0);
}
