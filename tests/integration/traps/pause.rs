//! CLIENT PAUSE with an append-only file: a write from a timer then aborts every server.
//! tests/scenarios/pauses.txt has more of it.

use std::time::{Duration, Instant};

use super::super::leaving::may_be_unblocked;
use crate::harness::{Kind, Reply, Server};

on_every_server![
    a_deadline_during_a_full_pause_grants_after_it,
    a_waiter_that_leaves_during_a_pause_is_not_granted,
    commands_sent_during_a_pause_run_after_it,
];

fn start(kind: Kind) -> Server {
    Server::start_with(kind, &["--appendonly", "yes"])
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
