//! Permits in replicas, in files and in payloads.

use super::fixture::{limit, permit, refused};
use crate::harness::{wait_for, Client, Kind, Reply, Server, State};

on_every_server![
    replicas_have_the_same_permits,
    a_replica_that_becomes_the_primary_counts_them,
    an_rdb_keeps_permits,
    an_aof_keeps_permits,
    a_rewritten_aof_keeps_permits,
    a_dumped_permit_is_restored_unchanged,
];

/// Permits in every shape, and changes of them.
fn take_some(server: &Server, c: &mut Client) {
    permit(c, "alone", "a", 3);
    for (token, limit) in [("a", 9), ("b", 4), ("c", 9), ("d", 2_147_483_647)] {
        permit(c, "several", token, limit);
    }
    c.int("RWLOCK.RLOCK mixed r 90000");
    permit(c, "mixed", "a", 4);
    permit(c, "mixed", "b", 3);
    // The smallest limit is full.
    for token in ["a", "b"] {
        permit(c, "full", token, 2);
    }
    c.int("LOCK.RENEW several b 900000");
    c.int("LOCK.RELEASE several c");
    permit(c, "several", "a", 5);
    c.int("LOCK.ACQUIRE converted a 60000");
    permit(c, "converted", "a", 7);
    permit(c, "was-counted", "a", 7);
    c.int("RWLOCK.RLOCK was-counted a 60000");
    c.int("PEXPIRE mixed 80000");
    permit(c, "mixed", "a", 4);
    let waiter = server.blocked("LOCK.ACQUIRE full c 60000 LIMIT 2 BLOCK 0");
    c.int("LOCK.RELEASE full a");
    waiter.fence();
    c.multi(&[
        "LOCK.ACQUIRE in-multi a 60000 LIMIT 2",
        "LOCK.ACQUIRE in-multi b 60000 LIMIT 2",
        "LOCK.RELEASE in-multi a ATLEAST 50000",
    ]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'a', '60000', 'LIMIT', '6')";
    assert!(c.send(&["EVAL", script, "1", "in-script"]).as_int() > 0);
}

#[track_caller]
fn assert_kept(c: &mut Client, when: &str) {
    for (key, expected, tokens) in [
        ("alone", 3, &["a"][..]),
        ("several", 4, &["a", "b", "d"]),
        ("mixed", 3, &["r", "a", "b"]),
        ("full", 2, &["b", "c"]),
        ("converted", 7, &["a"]),
        ("in-multi", 2, &["a", "b"]),
        ("in-script", 6, &["a"]),
    ] {
        assert_eq!(limit(c, key), Some(expected), "{when}: {key}");
        assert_eq!(c.holders(key), tokens, "{when}: {key}");
    }
    assert_eq!(limit(c, "was-counted"), None);
    assert_eq!(c.info("lock_held_counted"), "13", "{when}");
}

/// Fails the test unless the limits still count.
#[track_caller]
fn assert_count(c: &mut Client, when: &str) {
    for key in ["full", "mixed", "in-multi"] {
        refused(c, &format!("LOCK.ACQUIRE {key} new 60000 LIMIT 9"));
    }
    assert!(
        permit(c, "several", "new", 9) > 0,
        "{when}: there is room for one"
    );
    refused(c, "LOCK.ACQUIRE several newer 60000 LIMIT 9");
    assert_eq!(c.int("LOCK.RELEASE full b"), 1);
    assert!(permit(c, "full", "new", 2) > 0);
    refused(c, "LOCK.ACQUIRE full newer 60000 LIMIT 2");
}

fn replicas_have_the_same_permits(kind: Kind) {
    let server = Server::start(kind);
    let by_effects = Server::start_replica_of(&server, &[]);
    let mut c = server.client();
    take_some(&server, &mut c);
    let by_snapshot = Server::start_replica_of(&server, &[]);
    let state = State::of(&mut c);
    for (replica, when) in [(by_effects, "by effects"), (by_snapshot, "by a snapshot")] {
        replica.wait_until_it_follows(&server);
        let mut r = replica.client();
        State::of(&mut r).assert_same(&state, when);
        assert_kept(&mut r, when);
    }
}

fn a_replica_that_becomes_the_primary_counts_them(kind: Kind) {
    let mut server = Server::start(kind);
    let replica = Server::start_replica_of(&server, &[]);
    let mut c = server.client();
    take_some(&server, &mut c);
    let largest = permit(&mut c, "last", "a", 2);
    replica.wait_until_it_follows(&server);
    server.kill();
    let mut r = replica.client();
    r.call("REPLICAOF NO ONE");
    assert!(permit(&mut r, "last", "b", 2) > largest);
    r.call("DEL last");
    assert_kept(&mut r, "after the promotion");
    assert_count(&mut r, "after the promotion");
}

fn an_rdb_keeps_permits(kind: Kind) {
    let mut server = Server::start(kind);
    let mut c = server.client();
    take_some(&server, &mut c);
    let before = State::of(&mut c);
    server.shut_down_saving();
    server.start_again();
    let mut c = server.client();
    State::of(&mut c).assert_same(&before, "after the restart");
    assert_kept(&mut c, "after the restart");
    assert_count(&mut c, "after the restart");
}

fn an_aof_keeps_permits(kind: Kind) {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::start_with(kind, &options);
    let mut c = server.client();
    take_some(&server, &mut c);
    let before = State::of(&mut c);
    server.kill();
    server.start_again();
    let mut c = server.client();
    State::of(&mut c).assert_same(&before, "after the crash");
    assert_kept(&mut c, "after the crash");
    assert_count(&mut c, "after the crash");
}

fn a_rewritten_aof_keeps_permits(kind: Kind) {
    for preamble in ["yes", "no"] {
        let options = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let mut server = Server::start_with(kind, &options);
        let mut c = server.client();
        take_some(&server, &mut c);
        wait_for("the rewrite to begin", || {
            (!matches!(c.call("BGREWRITEAOF"), Reply::Error(_))).then_some(())
        });
        wait_for("the rewrite to end", || {
            let is_idle = c.info("aof_rewrite_in_progress") == "0";
            (is_idle && c.info("aof_rewrite_scheduled") == "0").then_some(())
        });
        let before = State::of(&mut c);
        server.shut_down();
        server.start_again();
        let mut c = server.client();
        let when = format!("after a rewrite with preamble {preamble}");
        State::of(&mut c).assert_same(&before, &when);
        assert_kept(&mut c, &when);
        assert_count(&mut c, &when);
    }
}

fn a_dumped_permit_is_restored_unchanged(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    take_some(&server, &mut c);
    let other = Server::start(kind);
    let mut o = other.client();
    for key in c.call("KEYS *").items() {
        let key = key.as_bytes();
        let dump = c.send(&[b"DUMP".as_slice(), key]);
        let restored = o.send(&[b"RESTORE".as_slice(), key, b"0", dump.as_bytes()]);
        assert_eq!(
            restored,
            Reply::Simple("OK".into()),
            "{}",
            key.escape_ascii()
        );
        assert_eq!(
            o.send(&[b"DUMP".as_slice(), key]),
            dump,
            "{}",
            key.escape_ascii()
        );
    }
    assert_kept(&mut o, "after RESTORE");
    assert_count(&mut o, "after RESTORE");
}
