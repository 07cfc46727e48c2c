//! Waiting requests that become conversions, because their token gets a shared hold while they
//! wait.
//!
//! Every hold lasts a minute here, and is renewed, so no deadline resolves a wait.

use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    a_restored_lock_causes_no_deadlock,
    a_moved_lock_causes_no_deadlock,
];

fn a_restored_lock_causes_no_deadlock(kind: Kind) {
    a_replaced_lock_brings_no_deadlock(kind, |c| {
        let payload = c.call("DUMP shares");
        let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", payload.as_bytes(), b"REPLACE"];
        assert_eq!(c.send(&words), Reply::Simple("OK".into()));
    });
}

fn a_moved_lock_causes_no_deadlock(kind: Kind) {
    a_replaced_lock_brings_no_deadlock(kind, |c| {
        c.int("MOVE shares 1");
        let away = ["SELECT 1", "RENAME shares k", "SELECT 0", "DEL k"];
        let replies = c.multi(&[&away[..], &["SELECT 1", "MOVE k 0", "SELECT 0"]].concat());
        assert_eq!(replies[5], Reply::Int(1));
    });
}

/// Two writers wait, and the lock is replaced by one that both share.
fn a_replaced_lock_brings_no_deadlock(kind: Kind, replace: fn(&mut Client)) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k z 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let b = server.blocked("RWLOCK.WLOCK k b 60000 BLOCK 0");
    let a = server.blocked("RWLOCK.WLOCK k a 60000 BLOCK 0");
    let share = shares_of_a_and_b(&mut c);
    replace(&mut c);
    a.error("DEADLOCK ");
    assert_eq!(c.waiters("k"), ["b", "w"]);
    renew(&mut c, &["a", "b"]);
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert_eq!(b.fence(), share);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(w.fence() > share);
    assert_eq!(c.info("lock_deadlocks"), "1");
}

/// Gives two tokens shared holds of a lock under another key. Returns the second one's fence.
fn shares_of_a_and_b(c: &mut Client) -> i64 {
    c.int("RWLOCK.RLOCK shares a 60000");
    c.int("RWLOCK.RLOCK shares b 60000")
}

fn renew(c: &mut Client, tokens: &[&str]) {
    for token in tokens {
        assert_eq!(c.int(&format!("LOCK.RENEW k {token} 60000")), 1);
    }
}
