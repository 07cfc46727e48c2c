//! A client is granted and disconnected in one step, before delivery. The grant is taken back, and
//! the next waiter is granted at once. No hold here lasts less than a minute, so none ends by its
//! deadline.

use super::may_be_unblocked;
use crate::harness::{wait_for, Client, Kind, Later, Reply, Server};

on_every_server![
    a_grant_to_a_killed_client_is_taken_back,
    a_client_that_is_killed_first_is_not_granted,
    a_grant_to_a_client_unblocked_with_an_error_is_taken_back,
    a_grant_with_unblock_timeout_gives_one_reply,
    unblock_timeout_with_a_release_gives_one_reply,
    a_delivered_hold_is_not_taken_back,
    a_newer_hold_of_the_same_token_is_not_taken_back,
    a_hold_delivered_to_another_waiter_of_the_token_is_not_taken_back,
    a_grant_to_all_waiters_of_a_token_is_taken_back_when_all_are_gone,
    taking_back_an_upgrade_leaves_the_shared_hold,
    taking_back_an_upgrade_does_not_lengthen_the_shared_hold,
    the_hold_of_a_killed_reader_is_taken_back_alone,
    a_grant_to_a_deleted_user_is_taken_back,
    several_killed_waiters_in_a_row_are_passed_over,
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

fn a_grant_to_a_killed_client_is_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in RELEASES {
        let (b, d) = contended(&server, &mut c);
        let replies = c.multi(&[release, &kill(&b)]);
        assert_eq!(replies[1], Reply::Int(1));
        b.broken();
        d.fence();
        assert_eq!(c.holders("k"), ["d"], "{release}");
        c.int("LOCK.RELEASE k d");
        assert_eq!(c.int("EXISTS k"), 0);
    }
}

fn a_client_that_is_killed_first_is_not_granted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in RELEASES {
        let (b, d) = contended(&server, &mut c);
        let holder = "LOCK.ACQUIRE k d 60000"; // Reads the holder as d, inside the transaction.
        let replies = c.multi(&[&kill(&b), release, holder]);
        assert_eq!(replies[0], Reply::Int(1));
        let Reply::Int(fence) = replies[2] else {
            panic!("{release}: {replies:?}");
        };
        b.broken();
        assert_eq!(d.fence(), fence, "{release}");
        assert_eq!(c.holders("k"), ["d"]);
        c.int("LOCK.RELEASE k d");
    }
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

fn a_delivered_hold_is_not_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for learns in ["LOCK.ACQUIRE k b 60000", "LOCK.RENEW k b 60000"] {
        let (b, d) = contended(&server, &mut c);
        let replies = c.multi(&["LOCK.RELEASE k a", &kill(&b), learns]);
        assert!(
            matches!(replies[2], Reply::Int(1..)),
            "{learns}: {replies:?}"
        );
        b.broken();
        let_the_timer_run(&server);
        assert_eq!(c.holders("k"), ["b"], "{learns}");
        assert!(d.is_pending());
        assert_eq!(c.int("LOCK.RELEASE k b"), 1);
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}

fn a_newer_hold_of_the_same_token_is_not_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let replies = c.multi(&[
        "LOCK.RELEASE k a",
        &kill(&b),
        "LOCK.RELEASE k b",
        "LOCK.ACQUIRE k b 60000",
    ]);
    assert_eq!(replies[2], Reply::Int(1), "its owner may end it unheard");
    b.broken();
    let_the_timer_run(&server);
    assert_eq!(c.int("LOCK.ACQUIRE k b 60000"), replies[3].as_int());
}

fn a_hold_delivered_to_another_waiter_of_the_token_is_not_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for killed in [0, 1] {
        c.int("LOCK.ACQUIRE k a 60000");
        let twins = [0, 1].map(|_| server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0"));
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        c.multi(&["LOCK.RELEASE k a", &kill(&twins[killed])]);
        let mut fence = 0;
        for (n, twin) in twins.into_iter().enumerate() {
            if n == killed {
                twin.broken();
            } else {
                fence = twin.fence();
            }
        }
        let_the_timer_run(&server);
        assert!(d.is_pending());
        assert_eq!(c.int("LOCK.ACQUIRE k b 60000"), fence);
        c.int("LOCK.RELEASE k b");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}

fn a_grant_to_all_waiters_of_a_token_is_taken_back_when_all_are_gone(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let twins = [0, 1, 2].map(|_| server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0"));
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let kills: Vec<_> = twins.iter().map(kill).collect();
    c.multi(&["LOCK.RELEASE k a", &kills[0], &kills[1], &kills[2]]);
    twins.into_iter().for_each(Later::broken);
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}

fn taking_back_an_upgrade_leaves_the_shared_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let share = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k other", &kill(&up)]);
    up.broken();
    // Only the shared hold was delivered to its owner.
    r.fence();
    let info = c.call("LOCK.INFO k");
    assert_eq!(info.field("mode"), "shared".into());
    assert_eq!(c.holders("k"), ["up", "r"]);
    assert_eq!(
        info.field("holders").items()[0].field("fence"),
        Reply::Int(share)
    );
    assert!(w.is_pending());
    c.int("LOCK.RELEASE k r");
    assert!(w.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k up"), 1);
    w.fence();
}

fn taking_back_an_upgrade_does_not_lengthen_the_shared_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k up 20000");
    c.int("RWLOCK.RLOCK k other 60000");
    let up = server.blocked("RWLOCK.WLOCK k up 3600000 BLOCK 0");
    let r = server.blocked("RWLOCK.RLOCK k r 1000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k other", &kill(&up)]);
    up.broken();
    r.fence();
    let ttl = c.call("LOCK.INFO k").field("holders").items()[0].field("ttl");
    assert!((1..=20_000).contains(&ttl.as_int()), "{ttl:?}");
    assert!((1..=20_000).contains(&c.int("PTTL k")));
}

fn the_hold_of_a_killed_reader_is_taken_back_alone(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.WLOCK k a 60000");
    let r1 = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
    let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    let r3 = server.blocked("RWLOCK.RLOCK k r3 60000 BLOCK 0");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k a", &kill(&r2)]);
    r2.broken();
    assert!(r1.fence() < r3.fence());
    let_the_timer_run(&server);
    assert_eq!(c.holders("k"), ["r1", "r3"]);
    c.int("LOCK.RELEASE k r1");
    assert!(w.is_pending());
    c.int("LOCK.RELEASE k r3");
    w.fence();
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

fn several_killed_waiters_in_a_row_are_passed_over(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let dead: Vec<_> = (0..5)
        .map(|n| server.blocked(&format!("LOCK.ACQUIRE k dead{n} 60000 BLOCK 0")))
        .collect();
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let mut lines = vec!["LOCK.RELEASE k a".to_string()];
    lines.extend(dead.iter().map(kill));
    // The first of them is granted before any is killed, the others are killed while they wait.
    c.multi(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
    dead.into_iter().for_each(Later::broken);
}

/// Returns after the server's timer has run following all earlier commands.
pub(super) fn let_the_timer_run(server: &Server) {
    let mut c = server.client();
    c.int("LOCK.ACQUIRE turn one 60000");
    let mut two = server.raw_blocked("LOCK.ACQUIRE turn two 60000 BLOCK 5");
    assert_eq!(two.line().unwrap(), "$-1");
    c.int("DEL turn");
}
