//! Locks without a ttl. The module is not notified when a lock loses its ttl, so a sweep of the
//! keyspace restores it. The sweep deletes expired locks.
//!
//! A sweep runs after a start, after a load and after a promotion.

use crate::harness::workload::words;
use crate::harness::{now_ms, wait_for, Client, Kind, Reply, Server, SYNCED};

on_every_server![
    locks_without_a_ttl_in_an_rdb_are_repaired,
    locks_without_a_ttl_in_an_aof_are_repaired,
    a_promoted_replica_repairs_ttls_that_its_primary_did_not,
    a_sweep_finds_locks_among_many_other_keys,
    a_key_with_a_longer_ttl_is_left_alone,
];

/// Longer than all steps before its end.
const SHORT_MS: i64 = 700;

/// Creates locks without a ttl in two databases: `over` expires after [`SHORT_MS`], `half` loses
/// one of its holders then, `live` stays. `copy` comes by RESTORE. All arrive at once with `then`,
/// before the timer can see any of them. Returns when the short ones expire.
fn take_without_ttl(c: &mut Client, then: &str) -> i64 {
    c.int("LOCK.ACQUIRE original me 600000");
    let dump = c.call("DUMP original");
    c.int("DEL original");
    let mut lines = Vec::new();
    for db in ["1", "0"] {
        lines.push(format!("SELECT {db}"));
        for key in ["live", "half", "over"] {
            if key != "over" {
                lines.push(format!("RWLOCK.RLOCK {key} me 600000"));
            }
            if key != "live" {
                lines.push(format!("RWLOCK.RLOCK {key} short {SHORT_MS}"));
            }
            lines.push(format!("PERSIST {key}"));
        }
    }
    let mut commands: Vec<Vec<Vec<u8>>> = lines.iter().map(|line| words(line)).collect();
    commands.push(
        [b"RESTORE".as_slice(), b"copy", b"0", dump.as_bytes()]
            .map(Vec::from)
            .into(),
    );
    commands.push(words(then));
    let replies = c.pipeline(&commands);
    let failed = replies
        .iter()
        .find(|reply| matches!(reply, Reply::Error(_)));
    assert_eq!(failed, None, "{then}");
    now_ms() + SHORT_MS
}

/// All locks expire with their holds again, and expired ones are gone.
#[track_caller]
fn assert_repaired(c: &mut Client, when: &str) {
    for db in ["1", "0"] {
        c.call(&format!("SELECT {db}"));
        c.until("EXISTS over", 0);
        assert_eq!(
            c.call("SET over x NX"),
            Reply::Simple("OK".into()),
            "{when}"
        );
        for key in ["live", "half"] {
            has_its_ttl(c, key, when);
            assert_eq!(c.holders(key), ["me"], "{when}");
        }
    }
    has_its_ttl(c, "copy", when);
}

#[track_caller]
fn has_its_ttl(c: &mut Client, key: &str, when: &str) {
    let ttl = wait_for(&format!("{when}: the ttl of {key}"), || {
        let ttl = c.int(&format!("PTTL {key}"));
        (ttl != -1).then_some(ttl)
    });
    assert!((500_000..=600_000).contains(&ttl), "{when}: {key}: {ttl}");
}

/// Waits until all short holds have expired, or returns at once.
fn wait_until(over_ms: i64, late: bool) {
    wait_for("the deadline", || {
        (!late || now_ms() > over_ms).then_some(())
    });
}

fn locks_without_a_ttl_in_an_rdb_are_repaired(kind: Kind) {
    for late in [false, true] {
        for save in ["SAVE", "BGSAVE"] {
            let mut server = Server::start(kind);
            let mut c = server.client();
            let over_ms = take_without_ttl(&mut c, save);
            c.until_info("rdb_bgsave_in_progress", "0");
            server.kill();
            wait_until(over_ms, late);
            server.start_again();
            assert_repaired(&mut server.client(), save);
        }
    }
    // In one transaction. BGSAVE replaces SAVE where SAVE is not allowed in one.
    let mut server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k me 600000");
    c.multi(&["PERSIST k", "BGSAVE"]);
    wait_for("the save", || {
        let saved = std::fs::metadata(server.dir().join("dump.rdb")).is_ok();
        (saved && c.info("rdb_bgsave_in_progress") == "0").then_some(())
    });
    server.kill();
    server.start_again();
    has_its_ttl(&mut server.client(), "k", "in a transaction");
    // A reload counts as a load.
    let mut c = server.client();
    c.in_one_go(&["PERSIST k", "DEBUG RELOAD"]);
    has_its_ttl(&mut c, "k", "after DEBUG RELOAD");
}

fn locks_without_a_ttl_in_an_aof_are_repaired(kind: Kind) {
    for preamble in ["yes", "no"] {
        for then in ["PING", "BGREWRITEAOF"] {
            let options = [&SYNCED[..], &["--aof-use-rdb-preamble", preamble]].concat();
            let mut server = Server::start_with(kind, &options);
            let mut c = server.client();
            let over_ms = take_without_ttl(&mut c, then);
            crate::harness::aof::until_rewritten(&mut c);
            server.kill();
            wait_until(over_ms, true);
            server.start_again();
            let when = format!("preamble {preamble}, {then}");
            assert_repaired(&mut server.client(), &when);
            // The repair is in the file.
            server.kill();
            server.start_again();
            assert_mended_already(&mut server.client(), &when);
        }
    }
    // No value of a lock is loaded from this file: it has an effect and the PERSIST.
    let mut server = Server::start_with(kind, &SYNCED);
    let mut c = server.client();
    c.in_one_go(&["LOCK.ACQUIRE k me 600000", "PERSIST k"]);
    server.kill();
    server.start_again();
    has_its_ttl(&mut server.client(), "k", "by commands alone");
}

/// At the first access.
#[track_caller]
fn assert_mended_already(c: &mut Client, when: &str) {
    for key in ["live", "half", "copy"] {
        assert!(c.int(&format!("PTTL {key}")) > 0, "{when}: {key}");
    }
    assert_eq!(c.text("TYPE over"), "string", "{when}");
}

fn a_promoted_replica_repairs_ttls_that_its_primary_did_not(kind: Kind) {
    for late in [false, true] {
        let mut primary = Server::start(kind);
        let replica = Server::start_replica_of(&primary, &["--repl-diskless-sync-delay", "0"]);
        let mut r = replica.client();
        let over_ms = take_without_ttl(&mut primary.client(), "PING");
        replica.wait_until_it_follows(&primary);
        primary.kill();
        wait_until(over_ms, late);
        // A replica repairs nothing on its own.
        assert_eq!(r.int("PTTL live"), -1);
        assert_eq!(r.int("PTTL over"), -1);
        r.text("REPLICAOF NO ONE");
        assert_repaired(&mut r, &format!("late: {late}"));
        // Its own replicas receive it.
        let next = Server::start_replica_of(&replica, &[]);
        assert_mended_already(&mut next.client(), "the next one");
    }
}

fn a_sweep_finds_locks_among_many_other_keys(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for db in [0, 1, 9, 15] {
        c.call(&format!("SELECT {db}"));
        c.call("DEBUG POPULATE 12500 other");
    }
    c.call("SELECT 0");
    let over_ms = take_without_ttl(&mut c, "PING");
    c.in_one_go(&["SELECT 15", "LOCK.ACQUIRE last me 600000", "PERSIST last"]);
    wait_until(over_ms, true);
    c.call("DEBUG RELOAD");
    has_its_ttl(&mut c, "last", "in the last database");
    assert_repaired(&mut c, "among many others");
    for db in [1, 9, 15] {
        c.call(&format!("SELECT {db}"));
        assert!(c.int("DBSIZE") >= 12_500);
    }
}

/// As documented, a key that PEXPIRE has lengthened is left alone, also over a load. Its hold ends
/// all the same.
fn a_key_with_a_longer_ttl_is_left_alone(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let year = "PEXPIRE k 31536000000";
    c.in_one_go(&[
        "LOCK.ACQUIRE k me 600000",
        "LOCK.ACQUIRE persisted me 600000",
        "PERSIST persisted",
        year,
        "DEBUG RELOAD",
    ]);
    // The sweep has passed.
    wait_for("the other's ttl", || {
        (c.int("PTTL persisted") > 0).then_some(())
    });
    assert!(c.int("PTTL k") > 600_000);
    assert_eq!(c.int("LOCK.RENEW k me 600000"), 1);
    assert!(c.int("PTTL k") <= 600_000);
}
