//! A key that changes under its waiters without being free in between: SWAPDB, MOVE, RENAME and
//! RESTORE bring another lock.

use crate::harness::{wait_for, Client, Kind, Later, Reply, Server};

on_every_server![
    waiters_follow_a_holder_changed_by_move,
    waiters_follow_a_holder_changed_by_restore,
    a_restored_lock_causes_no_deadlock,
    a_lock_moved_without_its_ttl_gets_it_back,
    a_lock_restored_without_its_ttl_gets_it_back_in_its_database,
    a_grant_leaves_the_client_in_its_database,
];

on_more_servers![a_grant_leaves_the_client_in_its_database];

/// `b` waits for the present hold of `z`, until `z` releases it or its deadline passes.
fn b_waits_for_z(c: &mut Client, b: Later) {
    assert_eq!(c.holders("k"), ["z"]);
    assert_eq!(c.waiters("k"), ["b"]);
    assert!(b.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k z"), 1);
    b.fence();
    assert_eq!(c.holders("k"), ["b"]);
}

/// A lock of `z` under `key`, and one of `a` under `k` that `b` waits for.
fn two_locks(server: &Server, c: &mut Client, z: &str) -> Later {
    c.int("LOCK.ACQUIRE k a 60000");
    c.int(z);
    server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0")
}

fn waiters_follow_a_holder_changed_by_move(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.text("SELECT 1");
    c.int("LOCK.ACQUIRE k z 60000");
    c.text("SELECT 0");
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let replies = c.multi(&["DEL k", "SELECT 1", "MOVE k 0", "SELECT 0"]);
    assert_eq!(replies[2], Reply::Int(1));
    b_waits_for_z(&mut c, b);
}

fn waiters_follow_a_holder_changed_by_restore(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let b = two_locks(&server, &mut c, "LOCK.ACQUIRE other z 60000");
    let dump = c.call("DUMP other");
    c.restore("k 0 REPLACE", dump.as_bytes()).assert_ok();
    b_waits_for_z(&mut c, b);
}

/// Two writers wait, and the lock is replaced by one that both share.
fn a_restored_lock_causes_no_deadlock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k z 60000");
    let [w, b, a] =
        ["w", "b", "a"].map(|t| server.blocked(&format!("RWLOCK.WLOCK k {t} 60000 BLOCK 0")));
    let [_, share] = ["a", "b"].map(|t| c.int(&format!("RWLOCK.RLOCK shares {t} 60000")));
    let dump = c.call("DUMP shares");
    let restored = c.send::<&[u8]>(&[b"RESTORE", b"k", b"0", dump.as_bytes(), b"REPLACE"]);
    assert_eq!(restored, Reply::Simple("OK".into()));
    a.error("DEADLOCK ");
    assert_eq!(c.waiters("k"), ["b", "w"]);
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert_eq!(b.fence(), share);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(w.fence() > share);
}

fn a_lock_moved_without_its_ttl_gets_it_back(kind: Kind) {
    for (moves, db) in [
        (&["RENAME k there"][..], 0),
        (&["RENAME k k2", "RENAME k2 there"], 0),
        (&["RENAME k there", "MOVE there 1"], 1),
        (&["RENAME k there", "SWAPDB 0 1"], 1),
        (
            &["SWAPDB 0 1", "SWAPDB 1 2", "SELECT 2", "RENAME k there"],
            2,
        ),
        (&["MOVE k 1", "SELECT 1", "RENAME k there", "SWAPDB 1 3"], 3),
    ] {
        let server = Server::start(kind);
        let mut c = server.client();
        c.int("LOCK.ACQUIRE k a 60000");
        c.multi(&[&["PERSIST k"], moves].concat());
        c.call(&format!("SELECT {db}"));
        assert_eq!(c.holders("there"), ["a"], "{moves:?}");
        // It has none until the next command on it.
        assert_eq!(c.int("LOCK.RELEASE there nobody"), 0, "{moves:?}");
        let ttl = c.int("PTTL there");
        assert!((50_000..=60_000).contains(&ttl), "{moves:?}: {ttl}");
    }
}

/// Redis 6.2 does not report the database of the new key, and other databases have that key, too.
fn a_lock_restored_without_its_ttl_gets_it_back_in_its_database(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("SELECT 9");
    c.int("LOCK.ACQUIRE k z 60000");
    let dump = c.call("DUMP k");
    c.int("DEL k");
    let mut here = server.client();
    here.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    here.call("SELECT 1");
    here.call("SET k text");
    c.restore("k 0", dump.as_bytes()).assert_ok();
    wait_for("the ttl", || (c.int("PTTL k") > 0).then_some(()));
    assert_eq!(c.holders("k"), ["z"]);
    assert_eq!(here.text("GET k"), "text");
    here.call("SELECT 0");
    assert_eq!(
        (here.holders("k"), here.waiters("k")),
        (vec!["a".into()], vec!["b".into()])
    );
    here.int("LOCK.RELEASE k a");
    b.fence();
}

/// If a module listens to keyspace events, Valkey 8.1 leaves the client of MOVE and of COPY in the
/// other database. This module does not listen.
fn a_grant_leaves_the_client_in_its_database(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (take, go) in [
        ("SET text v", "MOVE text 3"),
        ("SET text v", "COPY text copy DB 4"),
        ("LOCK.ACQUIRE k a 60000", "MOVE k 3"),
        ("LOCK.ACQUIRE k a 60000", "SWAPDB 0 5"),
    ] {
        c.call(take);
        let gone = c.call(go);
        assert!(!matches!(gone, Reply::Error(_)), "{go}: {gone:?}");
        c.call("SET here yes");
        let mut other = server.client();
        assert_eq!(other.int("EXISTS here"), 1, "{go}");
        c.call("FLUSHALL");
    }
}
