//! The module is missing: how a server without it reacts to files and to a primary with locks, and
//! how to remove the module.

use std::fs;

use crate::harness::{aof, project_file, wait_for, Kind, Server, SYNCED};

on_every_server![
    an_aof_with_locks_is_refused,
    a_replica_without_the_module_stops_at_a_lock,
    the_module_can_be_removed_as_documented,
];
// The RDB files of older servers name the module even before the first lock.
on_servers![[redis_8_2 Redis8_2, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9] effects_do_not_reach_a_replica_without_the_module];

/// The message of a server about an RDB with the data of an unknown module.
const NO_MODULE: &str = "no matching module";

fn an_aof_with_locks_is_refused(kind: Kind) {
    for preamble in ["yes", "no"] {
        for rewritten in [false, true] {
            let setup = [&SYNCED[..], &["--aof-use-rdb-preamble", preamble]].concat();
            let mut server = Server::start_with(kind, &setup);
            let mut c = server.client();
            c.int("LOCK.ACQUIRE k me 100000000");
            if rewritten {
                aof::rewrite(&mut c);
            }
            server.kill();
            let dir = server.dir().to_str().unwrap();
            let log = Server::log_of_failed_start(kind, &[&SYNCED[..], &["--dir", dir]].concat());
            let in_rdb = log.contains(NO_MODULE);
            let in_commands = log
                .to_ascii_lowercase()
                .contains("unknown command 'lock._apply'");
            let when = format!("preamble {preamble}, rewritten: {rewritten}");
            assert!(in_rdb || in_commands, "{when}: {log}");
            if rewritten {
                assert_eq!(in_rdb, preamble == "yes", "{when}: {log}");
            }
            assert!(!log.contains("BUG REPORT"), "{when}: {log}");
        }
    }
}

/// It cannot load the data of a primary with locks, and exits.
fn a_replica_without_the_module_stops_at_a_lock(kind: Kind) {
    let primary = Server::start_with(kind, &["--repl-diskless-sync-delay", "0"]);
    let mut c = primary.client();
    c.int("LOCK.ACQUIRE k me 100000000");
    let mut replica = Server::start_without_module(kind, &[]);
    replica.follow(&primary);
    wait_for("the replica to end", || replica.has_ended().then_some(()));
    let log = replica.log();
    assert!(
        log.contains(NO_MODULE) && log.contains("'redislock'"),
        "{log}"
    );
    assert!(!log.contains("BUG REPORT"), "{log}");
    // The primary is not affected.
    assert_eq!(c.holders("k"), ["me"]);
}

/// A replica that connected before the first lock: the link stays up, and the replica logs what it
/// cannot execute.
fn effects_do_not_reach_a_replica_without_the_module(kind: Kind) {
    let primary = Server::start_with(kind, &["--repl-diskless-sync-delay", "0"]);
    let port = primary.port.to_string();
    let replica = Server::start_without_module(kind, &["--replicaof", "127.0.0.1", &port]);
    replica.wait_until_link_is_up();
    let mut c = primary.client();
    c.int("LOCK.ACQUIRE k me 100000000");
    c.call("SET text stays");
    let mut r = replica.client();
    r.until("GET text", "stays");
    assert_eq!(r.int("EXISTS k"), 0);
    let log = replica.log().to_ascii_lowercase();
    let said = log.lines().find(|line| line.contains("lock._apply"));
    let said = said.unwrap_or_else(|| panic!("{log}"));
    assert!(said.contains("unknown command"), "{said}");
}

/// The steps of docs/UPGRADING.md, from a server with an RDB and from one with an append-only file.
fn the_module_can_be_removed_as_documented(kind: Kind) {
    let page = project_file("docs/UPGRADING.md");
    let (_, script) = page.split_once("redis-cli EVAL '").unwrap();
    let (script, _) = script.split_once("' 0\n").unwrap();
    for has_aof in [false, true] {
        let mut server = Server::start_with(kind, if has_aof { &SYNCED } else { &[] });
        let mut c = server.client();
        c.call("SET text stays");
        for db in [0, 2] {
            c.call(&format!("SELECT {db}"));
            c.int("LOCK.ACQUIRE k me 100000000");
            c.int("RWLOCK.RLOCK shared me 100000000");
        }
        c.call("SAVE");

        for db in [0, 2] {
            c.call(&format!("SELECT {db}"));
            assert_eq!(c.send(&["EVAL", script, "0"]).as_int(), 2);
        }
        c.call("CONFIG SET aof-use-rdb-preamble no");
        c.call("CONFIG SET appendonly yes");
        aof::until_rewritten(&mut c);
        aof::rewrite(&mut c);
        server.shut_down_by("SHUTDOWN NOSAVE");
        for part in aof::parts(server.dir()) {
            let bytes = fs::read(&part).unwrap().to_ascii_lowercase();
            let names_it = bytes.windows(5).any(|at| at == b"lock.");
            assert!(!names_it, "{part:?}: {}", bytes.escape_ascii());
        }

        let dir = server.dir().to_str().unwrap();
        let mut bare = Server::start_without_module(kind, &["--appendonly", "yes", "--dir", dir]);
        let mut b = bare.client();
        assert_eq!(b.text("GET text"), "stays");
        assert_eq!(b.int("DBSIZE"), 1);

        // Back to the former persistence, whose files contain no lock now.
        b.call("SAVE");
        bare.shut_down_by("SHUTDOWN NOSAVE");
        let without_aof = Server::start_without_module(kind, &["--dir", dir]);
        assert_eq!(without_aof.client().text("GET text"), "stays");
    }
}
