//! CLIENT PAUSE with an append-only file: a write from a timer then aborts every server.

use std::time::{Duration, Instant};

use super::super::leaving::may_be_unblocked;
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_deadline_during_a_write_pause_grants_after_it,
    a_deadline_during_a_full_pause_grants_after_it,
    a_timeout_during_a_pause_is_answered,
    a_waiter_that_leaves_during_a_pause_is_not_granted,
    an_undelivered_grant_at_a_pause_is_taken_back_after_it,
    commands_sent_during_a_pause_run_after_it,
    graces_end_during_a_pause_and_nothing_is_granted,
];

fn start(kind: Kind) -> Server {
    Server::start_with(kind, &["--appendonly", "yes"])
}

fn a_deadline_during_a_write_pause_grants_after_it(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    let first = c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.in_one_go(&["LOCK.RENEW k a 200", "CLIENT PAUSE 60000 WRITE"]);
    // During a pause of writes only LOCK.INFO can show that it is free.
    c.until_holders("k", &[]);
    // The server's timer runs many times in this span.
    let start = Instant::now();
    wait_for("some time to pass", || {
        assert_eq!(c.waiters("k"), ["b", "d"]);
        (start.elapsed() > Duration::from_millis(50)).then_some(())
    });
    assert!(b.is_pending() && d.is_pending());
    c.text("CLIENT UNPAUSE");
    assert!(b.fence() > first);
    assert_eq!(c.holders("k"), ["b"]);
    assert_eq!(c.waiters("k"), ["d"]);
    c.int("LOCK.RELEASE k b");
    d.fence();
}

fn a_deadline_during_a_full_pause_grants_after_it(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let start = Instant::now();
    c.in_one_go(&["LOCK.RENEW k a 200", "CLIENT PAUSE 700 ALL"]);
    let (reply, at) = b.reply_and_instant();
    assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
    let waited = at - start;
    assert!(waited >= Duration::from_millis(699), "{waited:?}");
    assert_eq!(c.holders("k"), ["b"]);
}

fn a_timeout_during_a_pause_is_answered(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k a 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 1500");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    c.text("CLIENT PAUSE 60000 WRITE");
    assert_eq!(w.reply(), Reply::Nil);
    // The reader is next now, but a grant is a write.
    assert!(r.is_pending());
    assert_eq!(c.waiters("k"), ["r"]);
    c.text("CLIENT UNPAUSE");
    r.fence();
    assert_eq!(c.holders("k"), ["a", "r"]);
}

fn a_waiter_that_leaves_during_a_pause_is_not_granted(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    c.in_one_go(&["LOCK.RENEW k a 200", "CLIENT PAUSE 60000 WRITE"]);
    c.until_holders("k", &[]);
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", b.id)), 1);
    b.broken();
    if may_be_unblocked(kind) {
        assert_eq!(c.int(&format!("CLIENT UNBLOCK {} TIMEOUT", d.id)), 1);
        assert_eq!(d.reply(), Reply::Nil);
    } else {
        assert_eq!(c.int(&format!("CLIENT KILL ID {}", d.id)), 1);
        d.broken();
    }
    assert_eq!(c.waiters("k"), ["e"]);
    c.text("CLIENT UNPAUSE");
    e.fence();
    assert_eq!(c.holders("k"), ["e"]);
}

fn an_undelivered_grant_at_a_pause_is_taken_back_after_it(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let kill = format!("CLIENT KILL ID {}", b.id);
    c.multi(&["LOCK.RELEASE k a", &kill, "CLIENT PAUSE 60000 WRITE"]);
    b.broken();
    let start = Instant::now();
    wait_for("some time to pass", || {
        assert_eq!(c.waiters("k"), ["d"]);
        (start.elapsed() > Duration::from_millis(50)).then_some(())
    });
    assert!(d.is_pending());
    c.text("CLIENT UNPAUSE");
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}

fn commands_sent_during_a_pause_run_after_it(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.text("CLIENT PAUSE 60000 WRITE");
    let release = server.blocked("LOCK.RELEASE k a");
    let acquire = server.blocked("LOCK.ACQUIRE other t 60000");
    assert!(b.is_pending() && release.is_pending() && acquire.is_pending());
    assert_eq!(c.holders("k"), ["a"]);
    c.text("CLIENT UNPAUSE");
    assert_eq!(release.reply(), Reply::Int(1));
    acquire.fence();
    b.fence();
}

fn graces_end_during_a_pause_and_nothing_is_granted(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    assert_eq!(c.call("LOCK.ACQUIRE k b 60000 KEEP 1000"), Reply::Nil);
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let replies = c.in_one_go(&["LOCK.RELEASE k a", "CLIENT PAUSE 60000 WRITE"]);
    assert_eq!(replies[0], Reply::Int(1));
    c.until_waiters("k", &["d"]);
    let start = Instant::now();
    wait_for("some turns of the timer", || {
        assert!(d.is_pending());
        (start.elapsed() > Duration::from_millis(40)).then_some(())
    });
    c.text("CLIENT UNPAUSE");
    d.fence();
}
