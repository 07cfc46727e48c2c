//! Locks after a restart, from an RDB or an append-only file.

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{aof, now_ms, wait_for, workload};
use crate::harness::{Client, Kind, Reply, Server, State, SYNCED};

on_every_server![
    a_restart_restores_everything,
    deadlines_hold_over_a_restart,
    fences_keep_rising_over_restarts,
    a_server_without_the_module_refuses_an_rdb_with_fences_clearly,
];

fn aof_server(kind: Kind, preamble: &str) -> Server {
    let options = [&SYNCED[..], &["--aof-use-rdb-preamble", preamble]].concat();
    Server::start_with(kind, &options)
}

/// A server with an append-only file, or with RDB files only.
fn server_with(kind: Kind, preamble: Option<&str>) -> Server {
    preamble.map_or_else(
        || Server::start(kind),
        |preamble| aof_server(kind, preamble),
    )
}

/// Restarts it: after a crash if it has an append-only file, else after a last save.
fn restart(server: &mut Server, preamble: Option<&str>) {
    match preamble {
        Some(_) => server.kill(),
        None => server.shut_down_saving(),
    }
    server.start_again();
}

/// Locks of every shape, in several databases.
fn take_many(c: &mut Client) {
    let longest = [b'x'; 512];
    for db in ["0", "1", "3"] {
        c.send(&["SELECT", db]);
        c.int("LOCK.ACQUIRE exclusive me 600000");
        c.int("RWLOCK.RLOCK alone me 600000");
        c.int("LOCK.ACQUIRE long me 281474976710656");
        c.int("RWLOCK.WLOCK converted me 600000");
        c.int("RWLOCK.RLOCK converted me 700000");
        c.int("RWLOCK.RLOCK converted you 500000");
        for token in [&b"\0"[..], b"\r\n*1\r\n", b"\xff\xfe", &longest] {
            let fence = c.send(&[&b"RWLOCK.RLOCK"[..], b"sha\0red", token, b"600000"]);
            assert!(fence.as_int() > 0);
        }
        c.send(&[&b"LOCK.ACQUIRE"[..], &longest, &longest, b"600000"]);
        c.int("RWLOCK.RLOCK shortened a 600000");
        c.int("RWLOCK.RLOCK shortened b 300000");
        c.int("PEXPIRE shortened 400000"); // not yet written into the holds
        c.int("RWLOCK.RLOCK capped a 600000");
        c.int("PEXPIRE capped 400000");
        c.int("RWLOCK.RLOCK capped b 500000"); // now it is
        c.int("LOCK.ACQUIRE lengthened me 600000");
        c.int("PEXPIRE lengthened 900000");
        c.int("RWLOCK.RLOCK persisted me 600000");
        c.int("PERSIST persisted");
        c.int("LOCK.RELEASE persisted nobody"); // which restores its ttl
        for line in [
            "LOCK.ACQUIRE permits a 600000 LIMIT 9",
            "LOCK.ACQUIRE permits b 700000 LIMIT 4",
            "RWLOCK.RLOCK permits r 600000",
            "LOCK.ACQUIRE full a 600000 LIMIT 2",
            "LOCK.ACQUIRE full b 600000 LIMIT 2",
            "LOCK.ACQUIRE was-counted a 600000 LIMIT 7",
            "RWLOCK.RLOCK was-counted a 600000",
        ] {
            c.int(line);
        }
        c.call("SET text text");
    }
    c.call("SELECT 0");
}

/// The state that `take_many` creates, to compare it with the state after a restart.
fn with_many(c: &mut Client) -> State {
    take_many(c);
    workload::settle(c);
    let state = State::of(c);
    assert_eq!(state.len(), 3 * 14);
    state
}

#[track_caller]
fn assert_back(server: &Server, state: &State, when: &str) {
    let mut c = server.client();
    State::of(&mut c).assert_same(state, when);
    // They not only exist, they work.
    assert_eq!(c.call("LOCK.ACQUIRE exclusive you 60000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW exclusive me 600000"), 1);
    assert_eq!(c.int("LOCK.RELEASE converted you"), 1);
    assert_eq!(c.int("LOCK.RELEASE alone me"), 1);
    // The limits count.
    assert_eq!(c.call("LOCK.ACQUIRE full you 60000 LIMIT 9"), Reply::Nil);
    assert!(c.int("LOCK.ACQUIRE permits you 60000 LIMIT 9") > 0);
    assert_eq!(c.call("LOCK.ACQUIRE permits me 60000 LIMIT 9"), Reply::Nil);
    assert!(c.int("RWLOCK.RLOCK was-counted you 60000") > 0);
}

fn a_restart_restores_everything(kind: Kind) {
    for preamble in [None, Some("yes"), Some("no")] {
        let mut server = server_with(kind, preamble);
        let state = with_many(&mut server.client());
        restart(&mut server, preamble);
        assert_back(&server, &state, &format!("preamble {preamble:?}"));
    }
}

/// Also those that pass while the server is down.
fn deadlines_hold_over_a_restart(kind: Kind) {
    const LATER_MS: i64 = 3_000;
    for aof in [false, true] {
        let mut server = Server::start_with(kind, if aof { &SYNCED } else { &[] });
        let mut c = server.client();
        c.int("RWLOCK.RLOCK shared stays 600000");
        c.int("RWLOCK.RLOCK shared short 600");
        let earliest = now_ms() + LATER_MS;
        c.int(&format!("LOCK.ACQUIRE later dead {LATER_MS}"));
        let latest = now_ms() + LATER_MS;
        let fence = c.int("LOCK.ACQUIRE k short 600");
        c.int("PEXPIRE k 600000"); // then only the hold itself has the deadline
        let ends = now_ms() + 600;
        if !aof {
            c.call("SAVE");
        }
        server.kill();
        wait_for("the deadline", || (now_ms() > ends).then_some(()));
        server.start_again();
        let next = server.later("LOCK.ACQUIRE later next 60000 BLOCK 0");
        let mut c = server.client();
        assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
        for line in ["LOCK.RENEW k short 60000", "LOCK.RELEASE k short"] {
            assert_eq!(c.int(line), 0, "{line}");
        }
        assert!(c.int("LOCK.ACQUIRE k you 60000") > fence);
        assert_eq!(c.holders("shared"), ["stays"]);
        // Who waits gets the lock at the deadline, and not before.
        assert!(next.fence() > fence);
        let holder = c.call("LOCK.INFO later").field("holders").items()[0].clone();
        let since = holder.field("since").as_int();
        let on_time = earliest..latest + 5_000;
        assert!(on_time.contains(&since), "{since} is not in {on_time:?}");
    }
}

/// Fails the test if the next fence is not larger than the one that was raised beyond the clock.
#[track_caller]
fn assert_beyond(c: &mut Client, ahead: i64, when: &str) {
    let next = c.int("LOCK.ACQUIRE next me 60000");
    assert!(next > ahead, "{when}: {next} after {ahead}");
    // Far from the fence that the clock alone would give.
    assert!(next < ahead + 1_000_000_000, "{when}: {next} after {ahead}");
    c.int("LOCK.RELEASE next me");
}

/// Not tested here: without the RDB at its head and with no lock held, a rewritten file cannot
/// store fences.
fn fences_keep_rising_over_restarts(kind: Kind) {
    for (preamble, rewrites, held) in [
        (None, false, false),
        (None, false, true),
        (Some("yes"), false, false),
        (Some("no"), false, false),
        (Some("yes"), true, false),
        (Some("yes"), true, true),
        (Some("no"), true, true),
    ] {
        let mut server = server_with(kind, preamble);
        let mut c = server.client();
        if held {
            c.int("LOCK.ACQUIRE k me 600000"); // with a smaller fence
        }
        let ahead = raise_fences_by_an_hour(&mut c);
        assert_eq!(c.int("DBSIZE"), held.into());
        if !held {
            c.call("FLUSHALL");
        }
        for _ in 0..2 {
            if rewrites {
                aof::rewrite(&mut server.client());
            }
            restart(&mut server, preamble);
        }
        let when = format!("preamble {preamble:?}, rewrites: {rewrites}, held: {held}");
        assert_beyond(&mut server.client(), ahead, &when);
    }
}

fn a_server_without_the_module_refuses_an_rdb_with_fences_clearly(kind: Kind) {
    for (has_fences, lines) in [
        (false, &[][..]),
        (false, &["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"]),
        (true, &["LOCK.ACQUIRE k me 600000", "LOCK.RELEASE k me"]),
        (true, &["LOCK.ACQUIRE k me 600000"]),
    ] {
        let mut server = Server::start(kind);
        let mut c = server.client();
        for line in lines {
            let reply = c.call(line);
            assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        }
        server.shut_down_saving();
        let dir = server.dir().to_str().unwrap();
        if !has_fences && kind.is_7_2_or_later() {
            // It contains nothing of the module.
            let bare = Server::start_without_module(kind, &["--dir", dir]);
            assert_eq!(bare.client().int("DBSIZE"), 0);
        } else {
            let log = Server::log_of_failed_start(kind, &["--dir", dir]);
            assert!(log.contains("no matching module 'redislock'"), "{log}");
        }
    }
}
