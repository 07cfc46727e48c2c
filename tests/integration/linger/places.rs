//! Requests with LINGER that wait.

use super::{bound, holder, kill, until_free};
use crate::harness::{wait_for, Client, Kind, Raw, Reply, Server};

on_every_server![
    a_hand_over_binds_the_hold,
    a_hand_over_without_linger_binds_nothing,
    a_grant_that_is_lost_is_not_bound,
    an_upgrade_that_is_lost_gives_the_share_back,
    a_channel_ends_with_its_connection,
    a_channel_with_keep_leaves_a_place,
    a_grant_to_a_channel_is_bound,
];

fn a_hand_over_binds_the_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 600000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 600000 LINGER 0 BLOCK 0");
    let d = server.raw_blocked("LOCK.ACQUIRE k d 600000 LINGER 400000 BLOCK 0");
    assert_eq!(bound(&mut c), 0);
    c.int("LOCK.RELEASE k a");
    let held_by = |c: &mut Client, token: &str| {
        wait_for(token, || (c.holders("k") == [token]).then_some(()));
    };
    held_by(&mut c, "b");
    assert_eq!(bound(&mut c), 1);
    received(b, |b| kill(&mut c, b));
    held_by(&mut c, "d");
    received(d, |d| kill(&mut c, d));
    c.int("LOCK.RENEW k other 1");
    assert!((300_000..=400_000).contains(&c.int("PTTL k")));
    // By the timer, at a deadline.
    c.int("LOCK.ACQUIRE j a 30");
    let b = server.raw_blocked("LOCK.ACQUIRE j b 600000 LINGER 0 BLOCK 0");
    received(b, |b| kill(&mut c, b));
    until_free(&mut c, "j");
}

/// Waits for the fence before it acts.
#[track_caller]
fn received(mut raw: Raw, act: impl FnOnce(&Raw)) {
    let reply = raw.line().expect("a reply");
    assert!(reply.starts_with(':'), "{reply}");
    act(&raw);
}

fn a_hand_over_without_linger_binds_nothing(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let a = holder(&server, "LOCK.ACQUIRE k a 600000 LINGER 0");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    kill(&mut c, &a);
    received(b, |b| kill(&mut c, b));
    c.int("LOCK.RENEW k other 1");
    assert_eq!(c.holders("k"), ["b"]);
    assert_eq!(bound(&mut c), 0);
}

fn a_grant_that_is_lost_is_not_bound(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 600000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 600000 BLOCK 0 LINGER 300000");
    let d = server.blocked("LOCK.ACQUIRE k d 600000 BLOCK 0");
    let kill = format!("CLIENT KILL ID {}", b.id);
    c.in_one_go(&["LOCK.RELEASE k a", &kill]);
    assert!(d.fence() > 0);
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(bound(&mut c), 0);
    assert_eq!(c.info("lock_taken_back"), "1");
    assert_eq!(c.info("lock_disconnected"), "0");
}

fn an_upgrade_that_is_lost_gives_the_share_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let share = c.int("RWLOCK.RLOCK k me 600000");
    c.int("RWLOCK.RLOCK k other 600000");
    let upgrade = server.raw_blocked("RWLOCK.WLOCK k me 600000 BLOCK 0 LINGER 0");
    let kill = format!("CLIENT KILL ID {}", upgrade.id);
    // The command after the loss finds the grant neither delivered nor revoked.
    c.in_one_go(&["LOCK.RELEASE k other", &kill, "LOCK.RENEW k other 1"]);
    wait_for("the share", || {
        let info = c.call("LOCK.INFO k");
        (info.field("mode").as_bytes() == b"shared").then_some(())
    });
    assert_eq!(c.int("LOCK.CHECK k me"), share);
    assert_eq!(bound(&mut c), 0);
}

/// A connection whose request waits by a channel.
#[track_caller]
fn queued(server: &Server, line: &str) -> Raw {
    let mut raw = server.raw();
    raw.send(line);
    assert_eq!(raw.line().as_deref(), Some("+QUEUED"), "{line}");
    raw
}

fn subscriber(server: &Server) -> Raw {
    let mut raw = server.raw();
    raw.send("SUBSCRIBE c");
    while !raw.line().expect("a reply").starts_with(":1") {}
    raw
}

fn a_channel_ends_with_its_connection(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let _subscriber = subscriber(&server);
    c.int("LOCK.ACQUIRE k a 600000");
    let b = queued(&server, "LOCK.ACQUIRE k b 600000 NOTIFY 0 c LINGER 0");
    let other = queued(&server, "LOCK.ACQUIRE k other 600000 NOTIFY 0 c");
    kill(&mut c, &other);
    kill(&mut c, &b);
    wait_for("b to leave", || (c.waiters("k") == ["other"]).then_some(()));
    // A later request of the token for the channel is that of its own connection.
    let old = queued(&server, "LOCK.ACQUIRE k d 600000 NOTIFY 0 c LINGER 0");
    let new = queued(&server, "LOCK.ACQUIRE k d 600000 NOTIFY 0 c LINGER 0");
    kill(&mut c, &old);
    c.int("LOCK.RENEW k other 1");
    assert_eq!(c.waiters("k"), ["other", "d"]);
    // The next one is granted when the one before it goes.
    c.int("LOCK.RELEASE k other");
    let blocked = server.blocked("LOCK.ACQUIRE k e 600000 BLOCK 0");
    kill(&mut c, &new);
    wait_for("d to leave", || (c.waiters("k") == ["e"]).then_some(()));
    c.int("LOCK.RELEASE k a");
    assert!(blocked.fence() > 0);
    assert_eq!(c.info("lock_published"), "0");
}

fn a_channel_with_keep_leaves_a_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let _subscriber = subscriber(&server);
    c.int("LOCK.ACQUIRE k a 600000");
    let line = "LOCK.ACQUIRE k b 600000 NOTIFY 0 c LINGER 0 KEEP 600000";
    let b = queued(&server, line);
    kill(&mut c, &b);
    wait_for("b to be absent", || {
        (c.info("lock_waiters_absent") == "1").then_some(())
    });
    assert_eq!(c.waiters("k"), ["b"]);
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.ACQUIRE k d 600000"), Reply::Nil);
    assert!(c.int("LOCK.ACQUIRE k b 600000") > 0);
}

fn a_grant_to_a_channel_is_bound(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut subscriber = subscriber(&server);
    c.int("LOCK.ACQUIRE k a 600000");
    let b = queued(&server, "LOCK.ACQUIRE k b 600000 NOTIFY 0 c LINGER 0");
    c.int("LOCK.RELEASE k a");
    while !subscriber
        .line()
        .expect("a message")
        .starts_with("granted ")
    {}
    assert_eq!(c.holders("k"), ["b"]);
    assert_eq!(bound(&mut c), 1);
    kill(&mut c, &b);
    until_free(&mut c, "k");
}
