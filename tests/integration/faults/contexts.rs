//! Locks from the view of clients that WATCH them.

use super::super::harness::workload::{words, Command};
use super::super::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    every_change_of_a_lock_fails_a_watch,
    every_end_by_time_and_every_grant_fails_a_watch,
];

fn every_change_of_a_lock_fails_a_watch(kind: Kind) {
    let server = Server::start(kind);
    let (mut watcher, mut c) = (server.client(), server.client());
    let payload = {
        c.int("LOCK.ACQUIRE k a 60000");
        c.call("DUMP k").as_bytes().to_vec()
    };
    let mut changes: Vec<(&str, Command)> = [
        "LOCK.ACQUIRE k a 70000",
        "LOCK.RENEW k a 70000",
        "LOCK.RELEASE k a",
        "RWLOCK.RLOCK k a 60000",
        "DEL k",
        "UNLINK k",
        "PEXPIRE k 50000",
        "PEXPIRE k -1",
        "PERSIST k",
        "RENAME k away",
        "RENAME other k",
        "MOVE k 3",
        "SWAPDB 0 3",
        "SET k text",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
    ]
    .map(|line| (line, words(line)))
    .to_vec();
    let mut restore = words("RESTORE k 60000");
    restore.extend([payload, b"REPLACE".to_vec()]);
    changes.push(("RESTORE", restore));
    for (change, args) in changes {
        c.call("FLUSHALL");
        c.int("LOCK.ACQUIRE k a 60000");
        c.int("LOCK.ACQUIRE other a 60000");
        assert!(
            is_broken(&mut watcher, || {
                let reply = c.send(&args);
                assert!(!matches!(reply, Reply::Error(_)), "{change}: {reply:?}");
            }),
            "{change}"
        );
    }
    c.call("FLUSHALL");
    for change in [
        "RWLOCK.RLOCK k a 60000", // of a free lock
        "RWLOCK.RLOCK k b 60000",
        "LOCK.RELEASE k a",
    ] {
        let breaks = is_broken(&mut watcher, || assert_ne!(c.int(change), 0));
        assert!(breaks, "{change}");
    }
}

fn every_end_by_time_and_every_grant_fails_a_watch(kind: Kind) {
    let server = Server::start(kind);
    let (mut watcher, mut c) = (server.client(), server.client());
    c.int("LOCK.ACQUIRE k a 2000");
    assert!(is_broken(&mut watcher, || {
        c.until("EXISTS k", 0);
    }));
    // A grant after a release, a deadline, a waiter that leaves, an eviction.
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 1000 BLOCK 0");
    let d = server.blocked("RWLOCK.RLOCK k d 60000 BLOCK 0");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    assert!(is_broken(&mut watcher, || {
        c.multi(&["LOCK.RELEASE k a"]);
        b.fence();
    }));
    assert!(is_broken(&mut watcher, || {
        d.fence();
    }));
    assert!(is_broken(&mut watcher, || {
        c.int(&format!("CLIENT KILL ID {}", w.id));
        r.fence();
    }));
    c.text("CONFIG SET maxmemory-policy allkeys-lru");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    assert!(is_broken(&mut watcher, || {
        c.text("CONFIG SET maxmemory 1");
        wait_for("an eviction", || {
            c.call("SET x y");
            (c.info("lock_evicted") != "0").then_some(())
        });
        c.text("CONFIG SET maxmemory 0");
        e.fence();
    }));
}

/// Whether `change` fails a WATCH of `k` that began before it.
fn is_broken(watcher: &mut Client, change: impl FnOnce()) -> bool {
    watcher.call("WATCH k");
    change();
    watcher.call("MULTI");
    watcher.call("PING");
    watcher.call("EXEC") == Reply::Nil
}
