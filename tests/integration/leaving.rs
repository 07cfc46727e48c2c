//! Every way to leave the queue without a grant: a client that leaves is never granted, and the
//! next ones are.

use crate::harness::{wait_for, Kind, Reply, Server};

mod delivered;
mod frozen;
mod undelivered;

on_every_server![
    client_unblock_ends_the_wait_where_that_is_safe,
    shutdown_does_not_wait_for_waiters,
    a_pipelined_quit_is_served_after_the_grant,
    a_client_that_is_evicted_is_not_granted,
];

/// Redis 7.4 and Valkey 8, where a timeout callback may coincide with a grant.
pub fn may_be_unblocked(kind: Kind) -> bool {
    kind.is_7_2_or_later()
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

fn a_client_that_is_evicted_is_not_granted(kind: Kind) {
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
    c.until_waiters("k", &["d"]);
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
    server.shut_down();
    b.broken();
    d.broken();
    let log = server.log();
    assert!(log.contains("bye bye"), "{log}");
}

fn a_pipelined_quit_is_served_after_the_grant(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for in_one_write in [true, false] {
        c.int("LOCK.ACQUIRE k a 60000");
        let line = "LOCK.ACQUIRE k b 60000 BLOCK 0";
        let mut b = if in_one_write {
            server.raw_blocked(&format!("{line}\r\nQUIT"))
        } else {
            let mut b = server.raw_blocked(line);
            b.send("QUIT");
            b
        };
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        assert_eq!(c.waiters("k"), ["b", "d"], "a blocked client reads no QUIT");
        c.int("LOCK.RELEASE k a");
        assert!(b.line().unwrap().starts_with(':'), "the grant comes first");
        assert_eq!(b.line().unwrap(), "+OK");
        assert_eq!(b.line(), None);
        undelivered::let_the_timer_run(&server);
        assert_eq!(c.holders("k"), ["b"], "it was told, so the hold is its own");
        assert!(d.is_pending());
        c.int("LOCK.RELEASE k b");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}
