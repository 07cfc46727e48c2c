//! A client is granted and disconnected in one step, before delivery. Its hold ends, and the next
//! waiter is granted at once. No hold here lasts less than a minute, so none ends by its deadline.

use std::time::{Duration, Instant};

use super::may_be_unblocked;
use crate::harness::{Client, Cluster, Kind, Later, Reply, Server};

on_every_server![
    a_grant_to_a_client_unblocked_with_an_error_is_taken_back,
    a_grant_with_unblock_timeout_gives_one_reply,
    a_waiter_killed_in_the_step_of_its_grant_keeps_nothing,
    a_waiter_killed_in_the_step_of_its_grant_keeps_nothing_with_io_threads,
    the_hold_of_a_killed_waiter_ends_when_the_cluster_is_up_again,
    a_waiter_killed_in_the_step_of_its_grant_keeps_nothing_with_client_eviction,
];

/// The ways to free the lock of `a` in a transaction.
const RELEASES: [&str; 3] = [
    "LOCK.RELEASE k a",
    "EVAL return{redis.call('LOCK.RELEASE',KEYS[1],'a')} 1 k",
    // It takes effect after the transaction.
    "DEL k",
];

/// A lock of `a`, with `b` and `d` waiting for it.
fn contended(server: &Server, c: &mut Client) -> (Later, Later) {
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    (b, d)
}

pub(super) fn kill(client: &Later) -> String {
    format!("CLIENT KILL ID {}", client.id)
}

fn a_grant_to_a_client_unblocked_with_an_error_is_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in RELEASES {
        for unblock_first in [false, true] {
            let (b, d) = contended(&server, &mut c);
            let unblock = format!("CLIENT UNBLOCK {} ERROR", b.id);
            let replies = if unblock_first {
                c.multi(&[&unblock, release, "PING"])
            } else {
                c.multi(&["PING", release, &unblock])
            };
            let unblocked = replies.iter().filter(|r| **r == Reply::Int(1)).count()
                >= if release.starts_with("EVAL") { 1 } else { 2 };
            assert_eq!(unblocked, may_be_unblocked(kind), "{replies:?}");
            let (reply, mut b) = b.reply_and_client();
            if unblocked {
                let error = Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into());
                assert_eq!(reply, error);
            } else {
                assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
                assert_eq!(b.int("LOCK.RELEASE k b"), 1);
            }
            assert_eq!(b.text("ECHO next"), "next", "one reply, no more");
            d.fence();
            assert_eq!(c.holders("k"), ["d"]);
            c.int("LOCK.RELEASE k d");
        }
    }
}

fn a_grant_with_unblock_timeout_gives_one_reply(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in ["LOCK.RELEASE k a", "LOCK.ACQUIRE k a 1"] {
        for again in [1, 2, 3] {
            let (b, d) = contended(&server, &mut c);
            let unblock = format!("CLIENT UNBLOCK {} TIMEOUT", b.id);
            // More than once, as an impatient client may.
            let mut lines = vec![release];
            lines.extend(vec![unblock.as_str(); again]);
            c.multi(&lines);
            settle(&mut c, b, d);
        }
    }
}

/// `b` gets one reply: it either has the lock and its fence, or a null, and then `d` has the lock.
fn settle(c: &mut Client, b: Later, d: Later) {
    let (reply, mut b) = b.reply_and_client();
    assert_eq!(b.text("ECHO next"), "next", "one reply, no more");
    match reply {
        Reply::Int(fence) => {
            let holders = c.call("LOCK.INFO k").field("holders");
            assert_eq!(holders.items()[0].field("token"), "b".into());
            assert_eq!(holders.items()[0].field("fence"), Reply::Int(fence));
            assert!(d.is_pending());
            assert_eq!(b.int("LOCK.RELEASE k b"), 1);
        }
        Reply::Nil => assert_eq!(b.int("LOCK.RELEASE k b"), 0),
        other => panic!("{other:?}"),
    }
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
    c.int("LOCK.RELEASE k d");
    assert_eq!(c.int("EXISTS k"), 0);
}

fn a_waiter_killed_in_the_step_of_its_grant_keeps_nothing(kind: Kind) {
    kill_in_the_step_of_the_grant(kind, &[]);
}

fn a_waiter_killed_in_the_step_of_its_grant_keeps_nothing_with_io_threads(kind: Kind) {
    let options = ["--io-threads", "4", "--io-threads-do-reads", "yes"];
    kill_in_the_step_of_the_grant(kind, &options);
}

fn a_waiter_killed_in_the_step_of_its_grant_keeps_nothing_with_client_eviction(kind: Kind) {
    kill_in_the_step_of_the_grant(kind, &["--maxmemory-clients", "1gb"]);
}

fn kill_in_the_step_of_the_grant(kind: Kind, options: &[&str]) {
    const GRACE_MS: u64 = 300;
    let server = Server::start_with(kind, options);
    let mut c = server.client();
    for release in RELEASES {
        let (b, d) = contended(&server, &mut c);
        c.multi(&[release, &kill(&b)]);
        b.broken();
        d.fence();
        assert_eq!(c.holders("k"), ["d"], "{release}");
        c.int("LOCK.RELEASE k d");
    }
    // With KEEP the hold ends after the grace.
    c.int("LOCK.ACQUIRE k a 60000");
    let line = format!("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP {GRACE_MS}");
    let b = server.blocked(&line);
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let start = Instant::now();
    c.multi(&["LOCK.RELEASE k a", &kill(&b)]);
    b.broken();
    assert_eq!(c.holders("k"), ["b"]);
    d.fence();
    assert!(start.elapsed() >= Duration::from_millis(GRACE_MS));
    c.int("LOCK.RELEASE k d");
    // All of several keys end.
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.MACQUIRE 3 i k j b 60000 BLOCK 0");
    let d = server.blocked("LOCK.MACQUIRE 2 i j d 60000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k a", &kill(&b)]);
    b.broken();
    d.fence();
    c.until("EXISTS k", 0);
    // A conversion stays.
    c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0 KEEP 1");
    c.multi(&["LOCK.RELEASE k other", &kill(&up)]);
    up.broken();
    let_the_timer_run(&server);
    assert_eq!(c.call("LOCK.INFO k").field("mode"), "exclusive".into());
    assert_eq!(c.int("LOCK.RENEW k up 60000"), 1);
}

/// The cluster goes down in the turn of the grant, so that the module cannot end the hold in it.
fn the_hold_of_a_killed_waiter_ends_when_the_cluster_is_up_again(kind: Kind) {
    let server = Cluster::node(kind, &[]);
    let mut c = server.client();
    for line in [
        "LOCK.ACQUIRE k b 600000 BLOCK 0",
        "LOCK.MACQUIRE 1 k b 600000 BLOCK 0",
    ] {
        c.int("LOCK.ACQUIRE k a 600000");
        let b = server.blocked(line);
        c.multi(&["LOCK.RELEASE k a", &kill(&b), "CLUSTER DELSLOTS 1"]);
        b.broken();
        c.refused("LOCK.CHECK k b", "CLUSTERDOWN ");
        c.text("CLUSTER ADDSLOTS 1");
        c.until("EXISTS k", 0);
    }
}

/// Returns after the server's timer has run following all earlier commands.
pub(super) fn let_the_timer_run(server: &Server) {
    let mut c = server.client();
    c.int("LOCK.ACQUIRE turn one 60000");
    let mut two = server.raw();
    two.send("LOCK.ACQUIRE turn two 60000 BLOCK 5");
    assert_eq!(two.line().unwrap(), "$-1");
    c.int("DEL turn");
}
