//! A client is granted and disconnected in one step, before delivery. The grant is taken back, and
//! the next waiter is granted at once. No hold here lasts less than a minute, so none ends by its
//! deadline.

use super::may_be_unblocked;
use crate::harness::{wait_for, Client, Kind, Later, Reply, Server};

on_every_server![
    a_grant_to_a_client_unblocked_with_an_error_is_taken_back,
    a_grant_with_unblock_timeout_gives_one_reply,
    unblock_timeout_with_a_release_gives_one_reply,
    a_grant_to_a_deleted_user_is_taken_back,
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

fn unblock_timeout_with_a_release_gives_one_reply(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in RELEASES {
        let (b, d) = contended(&server, &mut c);
        let unblock = format!("CLIENT UNBLOCK {} TIMEOUT", b.id);
        c.multi(&[&unblock, release, &unblock]);
        settle(&mut c, b, d);
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

fn a_grant_to_a_deleted_user_is_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in RELEASES {
        c.text("ACL SETUSER u on nopass allkeys +@all");
        c.int("LOCK.ACQUIRE k a 60000");
        let mut b = server.raw();
        b.send("AUTH u any");
        assert_eq!(b.line().unwrap(), "+OK");
        b.send("LOCK.ACQUIRE k b 60000 BLOCK 0");
        wait_for("b to wait", || (c.waiters("k") == ["b"]).then_some(()));
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        c.multi(&[release, "ACL DELUSER u"]);
        assert_eq!(b.line(), None);
        d.fence();
        assert_eq!(c.holders("k"), ["d"], "{release}");
        c.int("LOCK.RELEASE k d");
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
