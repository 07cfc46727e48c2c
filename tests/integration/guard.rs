//! The guard: after a start or a promotion a server makes no new grant until every lease is over
//! that it may lack.
//!
//! The world of servers in `src/engine/simulation` proves the rules. Here real servers lose real
//! records, and each loss has a control without the guard, where two tokens hold the lock.

mod cluster;
mod group;
mod lingering;
mod sentinel;
mod servers;

use std::time::{Duration, Instant};

use crate::harness::{for_ms, module, wait_for, Client, Clock, Kind, Reply, Server, Setup, SYNCED};
use crate::places::fixture::{queued, Subscriber};

on_every_server![
    a_server_that_starts_waits_out_what_it_lacks,
    a_promoted_replica_waits_out_what_it_lacks,
    a_start_waits_whatever_file_it_has_loaded,
    what_a_script_has_told_and_no_file_has_is_waited_out,
    a_longer_lease_that_came_in_is_waited_out,
    a_lease_from_before_the_guard_is_waited_out,
    a_wall_clock_set_forward_begins_it_anew,
    a_token_that_has_several_keys_asks_again_and_takes_no_place,
    transactions_and_scripts_get_null,
    it_ends_however_often_clients_ask,
    timeouts_run_and_graces_begin_anew_after_it,
    no_lease_is_longer_than_the_setting,
    settings_that_contradict_each_other_are_refused,
    leases_from_before_a_setting_are_waited_out,
];

const TTL_MS: u64 = 3_000;

/// The guard, with the longest lease of these tests.
const RESTART: [&str; 4] = ["guard", "restart", "max-ttl", "3000"];
const FAILOVER: [&str; 6] = ["guard", "failover", "max-ttl", "3000", "guard-slack", "300"];

/// The log has a line when a guard begins for a reason, and one when it ends.
#[track_caller]
fn assert_logged(server: &Server, reason: &str, end: &str) {
    let begun = format!("({reason})");
    wait_for(
        &format!("a begin and an end of {reason} in the log"),
        || {
            let log = server.log();
            log[log.find(&begun)?..].contains(end).then_some(())
        },
    );
}

const ENDED: &str = "guard: it has ended, locks are granted";

fn guarded_ms(c: &mut Client) -> u64 {
    c.info("lock_guard_left_ms").parse().unwrap()
}

/// Takes the lock, loses that by `lose`, and takes it again from what is left. Answers how long
/// after the sending of the first request the second token has the lock.
fn second_grant_after(server: &Server, lose: impl FnOnce() -> Client) -> Duration {
    let sent = Instant::now();
    let first = server.client().int("LOCK.ACQUIRE k first 3000");
    let mut c = lose();
    let second = c.int("LOCK.ACQUIRE k second 3000 BLOCK 20000");
    assert!(second > first);
    sent.elapsed()
}

fn a_server_that_starts_waits_out_what_it_lacks(kind: Kind) {
    for is_guarded in [true, false] {
        let options: &[&str] = if is_guarded { &RESTART } else { &[] };
        let mut server = Server::start_with(kind, options);
        let mut c = server.client();
        if is_guarded {
            assert_eq!(c.info("lock_guard"), "restart");
            assert!((3_000..=4_000).contains(&guarded_ms(&mut c)));
            assert_eq!(c.call("LOCK.ACQUIRE k early 3000"), Reply::Nil);
            c.until_info("lock_guard", "open");
        }
        let sent = Instant::now();
        c.int("LOCK.ACQUIRE k first 3000");
        server.kill();
        server.start_again();
        let waits = server.later("LOCK.ACQUIRE k second 3000 BLOCK 20000");
        if is_guarded {
            let mut c = server.client();
            wait_for("the waiter", || (server.waits().0 == 1).then_some(()));
            let info = c.call("LOCK.INFO k");
            assert!(info.field("guard").as_int() > 1_000, "{info:?}");
            assert_eq!(info.field("mode").as_bytes(), b"free");
        }
        waits.reply().as_int();
        let is_over = sent.elapsed() > Duration::from_millis(TTL_MS);
        assert_eq!(is_over, is_guarded, "{:?}", sent.elapsed());
        if is_guarded {
            assert_logged(&server, "restart", ENDED);
        } else {
            assert!(!server.log().contains("guard:"));
        }
    }
}

fn a_promoted_replica_waits_out_what_it_lacks(kind: Kind) {
    for is_guarded in [true, false] {
        let options: &[&str] = if is_guarded { &FAILOVER } else { &[] };
        let primary = Server::start_with(kind, options);
        let replica = Server::start_with(kind, options);
        let (mut old, mut c) = (primary.client(), replica.client());
        replica.follow(&primary);
        replica.wait_until_it_follows(&primary);
        if is_guarded {
            old.until_info("lock_guard", "open");
        }
        let known = old.int("LOCK.ACQUIRE known owner 3000");
        old.int("LOCK.ACQUIRE written owner 3000");
        replica.wait_until_it_follows(&primary);
        // What comes now never arrives.
        c.text("REPLICAOF 127.0.0.1 1");
        let elapsed = second_grant_after(&primary, || {
            c.text("REPLICAOF NO ONE");
            // A hold that has arrived goes on, and one that is released is handed on only later.
            assert_eq!(c.int("LOCK.CHECK known owner"), known);
            assert_eq!(c.int("LOCK.RENEW known owner 3000"), 1);
            if is_guarded {
                assert_eq!(c.info("lock_guard"), "promotion");
                assert_eq!(c.call("LOCK.ACQUIRE known owner 3000"), Reply::Nil);
                assert_eq!(c.call("LOCK.ACQUIRE other new 3000"), Reply::Nil);
                assert_eq!(c.call("LOCK.MACQUIRE 2 {k}1 {k}2 new 3000"), Reply::Nil);
                // A lost conversion may have let others in, to any limit.
                assert_eq!(
                    c.call("LOCK.ACQUIRE written owner 3000 LIMIT 9"),
                    Reply::Nil
                );
                // Its owner may be a reader at once. Whoever that lets in waits.
                c.int("RWLOCK.RLOCK written owner 3000");
                assert_eq!(c.call("RWLOCK.RLOCK written other 3000"), Reply::Nil);
                // Or it waits as a new one does, and keeps what it has.
                let again = replica.blocked("LOCK.ACQUIRE known owner 3000 BLOCK 20000");
                assert_eq!(c.int("LOCK.CHECK known owner"), known);
                assert_eq!(c.int("LOCK.CANCEL known TOKEN owner"), 1);
                assert!(matches!(again.reply(), Reply::Error(_)));
                let waits = replica.blocked("LOCK.ACQUIRE known next 3000 BLOCK 20000");
                assert_eq!(c.int("LOCK.RELEASE known owner"), 1);
                assert!(guarded_ms(&mut c) > 0 && !waits.is_answered());
                drop(waits);
            }
            replica.client()
        });
        let is_over = elapsed > Duration::from_millis(TTL_MS);
        assert_eq!(is_over, is_guarded, "{elapsed:?}");
        if is_guarded {
            assert_logged(&replica, "promotion", ENDED);
        }
    }
}

/// A file that is whole may lack what somebody has heard of.
fn a_start_waits_whatever_file_it_has_loaded(kind: Kind) {
    // Longer than the wait after a start: a promotion may have gone on before it.
    let failover = [&FAILOVER[..5], &["2000"]].concat();
    for (options, least_ms) in [(&RESTART[..], 3_000), (&failover, 4_000)] {
        let mut server = Server::start_with(kind, &[options, &SYNCED].concat());
        let mut c = server.client();
        c.until_info("lock_guard", "open");
        let fence = c.int("LOCK.ACQUIRE k me 3000");
        server.kill();
        server.start_again();
        let mut c = server.client();
        assert_eq!(c.info("lock_guard"), "restart");
        let left_ms = guarded_ms(&mut c);
        assert!(
            (least_ms..=least_ms + 1_000).contains(&left_ms),
            "{left_ms}"
        );
        assert_eq!(c.int("LOCK.CHECK k me"), fence);
        assert_eq!(c.call("LOCK.ACQUIRE other me 3000"), Reply::Nil);
    }
}

/// The server delivers what a script publishes while the script runs, and writes its effects when
/// it ends.
fn what_a_script_has_told_and_no_file_has_is_waited_out(kind: Kind) {
    let options = [&RESTART[..], &SYNCED, &["--lua-time-limit", "50"]].concat();
    let mut server = Server::start_with(kind, &options);
    let mut c = server.client();
    c.until_info("lock_guard", "open");
    c.int("LOCK.ACQUIRE k first 3000");
    let mut channel = Subscriber::new(&server, "SUBSCRIBE told");
    let sent = Instant::now();
    c.text("LOCK.ACQUIRE k second 3000 NOTIFY 0 told");
    let script = "redis.call('LOCK.RELEASE', KEYS[1], 'first') while true do end";
    let mut runs = server.raw();
    runs.send_together(&[&["EVAL", script, "1", "k"]]).unwrap();
    channel.fence("k", "second");
    server.shut_down_by("SHUTDOWN NOSAVE");
    server.start_again();
    let mut c = server.client();
    assert_eq!(c.info("lock_guard"), "restart");
    c.int("LOCK.ACQUIRE k third 3000 BLOCK 20000");
    assert!(
        sent.elapsed() > Duration::from_millis(TTL_MS),
        "{:?}",
        sent.elapsed()
    );
}

fn a_longer_lease_that_came_in_is_waited_out(kind: Kind) {
    for is_moved in [false, true] {
        let elsewhere = Server::start(kind);
        let mut there = elsewhere.client();
        there.int("LOCK.ACQUIRE k owner 60000");
        let mut server = Server::start_with(kind, &RESTART);
        let mut c = server.client();
        c.until_info("lock_guard", "open");
        if is_moved {
            there.text(&format!("MIGRATE 127.0.0.1 {} k 0 5000", server.port));
        } else {
            let payload = there.call("DUMP k");
            c.restore("k 60000", payload.as_bytes()).assert_ok();
        }
        wait_for("the longer lease to be noticed", || {
            server.log().contains("lock.max-ttl is less").then_some(())
        });
        // Its loss is one of those that the next guard is for, so only the file tells of it.
        assert_eq!(c.int("DEL k"), 1);
        c.text("SAVE");
        server.kill();
        server.start_again();
        assert!(guarded_ms(&mut server.client()) > 30_000);
        assert!(server.log().contains("lock.max-ttl is less"));
    }
}

fn a_lease_from_before_the_guard_is_waited_out(kind: Kind) {
    let mut server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k owner 60000");
    c.text("SAVE");
    server.kill();
    server.start_again_with(&RESTART);
    let mut c = server.client();
    assert_eq!(c.info("lock_guard"), "restart");
    assert!(guarded_ms(&mut c) > 30_000);
    assert!(server.log().contains("lock.max-ttl is less"));
}

/// A server with an open guard, and its wall clock.
fn open_with_clock(kind: Kind) -> (Server, Clock) {
    let clock = Clock::ahead_by_us(0);
    let setup = Setup::with_module(&RESTART).with_clock(&clock);
    let server = Server::start_as(kind, setup);
    server.client().until_info("lock_guard", "open");
    (server, clock)
}

/// A hold from when there was no longest lease, and a waiter from when it was longer.
fn leases_from_before_a_setting_are_waited_out(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE old me 59000");
    c.text("CONFIG SET lock.max-ttl 2000 lock.guard restart");
    wait_for("the lease to be found", || {
        server.log().contains("a lease may last 5").then_some(())
    });
    let server = Server::start_with(kind, &RESTART);
    let mut c = server.client();
    c.until_info("lock_guard", "open");
    c.int("LOCK.ACQUIRE k first 3000");
    let waits = server.blocked("LOCK.ACQUIRE k next 3000 BLOCK 20000");
    let all = server.blocked("LOCK.MACQUIRE 2 j k all 3000 BLOCK 20000");
    let shorter = server.blocked("LOCK.ACQUIRE k last 1000 BLOCK 20000");
    c.text("CONFIG SET lock.max-ttl 1000");
    // The leases of the old setting end.
    for_ms(TTL_MS, || {
        assert_eq!(c.int("LOCK.RENEW k first 1000"), 1);
    });
    assert_eq!(c.int("LOCK.RELEASE k first"), 1);
    waits.error("ERR ttl must not be above lock.max-ttl");
    all.error("ERR ttl must not be above lock.max-ttl");
    shorter.fence();
    // The same without a guard.
    c.text("CONFIG SET lock.guard off lock.max-ttl 60000");
    c.int("LOCK.ACQUIRE j me 60000");
    let waits = server.blocked("LOCK.ACQUIRE j next 60000 BLOCK 20000");
    c.text("CONFIG SET lock.max-ttl 1000");
    assert_eq!(c.int("LOCK.RELEASE j me"), 1);
    waits.error("ERR ttl must not be above lock.max-ttl");
}

fn a_wall_clock_set_forward_begins_it_anew(kind: Kind) {
    let (server, clock) = open_with_clock(kind);
    let mut c = server.client();
    // Nobody waits, so no timer looks: the request itself does.
    clock.set_ahead_by_us(10_000_000);
    c.until("LOCK.ACQUIRE free me 3000", Reply::Nil);
    assert_eq!(c.info("lock_guard"), "clock");
    c.until_info("lock_guard", "open");
    assert_logged(&server, "clock", ENDED);
    c.int("LOCK.ACQUIRE k me 3000");
    let waits = server.blocked("LOCK.ACQUIRE k next 3000 BLOCK 20000");
    // By this clock the hold is over.
    clock.set_ahead_by_us(70_000_000);
    c.until_info("lock_guard", "clock");
    assert!(!waits.is_answered());
    assert_eq!(c.call("LOCK.ACQUIRE free me 3000"), Reply::Nil);
    drop(waits);
}

/// Its place would stand behind others who wait for its own hold.
fn a_token_that_has_several_keys_asks_again_and_takes_no_place(kind: Kind) {
    let (server, clock) = open_with_clock(kind);
    let mut c = server.client();
    let line = "LOCK.MACQUIRE 2 {k}1 {k}2 me 3000";
    let fence = c.int(line);
    clock.set_ahead_by_us(50_000);
    c.until("LOCK.ACQUIRE free other 3000", Reply::Nil);
    let next = server.blocked("LOCK.ACQUIRE {k}1 next 3000 BLOCK 20000");
    assert_eq!(c.call(&format!("{line} BLOCK 20000")), Reply::Nil);
    assert_eq!(c.waiters("{k}1"), ["next"]);
    assert_eq!(c.waiters("{k}2"), [""; 0]);
    assert_eq!(c.int("LOCK.CHECK {k}1 me"), fence);
    assert!(next.fence() > fence);
}

fn transactions_and_scripts_get_null(kind: Kind) {
    let server = Server::start_with(kind, &RESTART);
    let mut c = server.client();
    c.text("MULTI");
    c.text("LOCK.ACQUIRE k me 3000 BLOCK 1000");
    assert_eq!(c.call("EXEC").items(), [Reply::Nil]);
    let script = [
        "EVAL",
        "return redis.call('LOCK.ACQUIRE', KEYS[1], 'me', 3000)",
        "1",
        "k",
    ];
    assert_eq!(c.send(&script), Reply::Nil);
    assert_eq!(c.info("lock_guards"), "1");
    assert_eq!(c.info("lock_guarded"), "2");
}

/// Each request looks at the clocks then.
fn it_ends_however_often_clients_ask(kind: Kind) {
    let server = Server::start_with(kind, &RESTART);
    let mut c = server.client();
    let line = ["LOCK.ACQUIRE k me 3000"; 500];
    wait_for("the first grant", || {
        (c.in_one_go(&line)[499] != Reply::Nil).then_some(())
    });
}

fn timeouts_run_and_graces_begin_anew_after_it(kind: Kind) {
    let server = Server::start_with(kind, &RESTART);
    let mut c = server.client();
    let mut heard = Subscriber::new(&server, "SUBSCRIBE mine");
    queued(&mut c, "LOCK.ACQUIRE told me 3000 NOTIFY 20000 mine");
    queued(&mut c, "LOCK.ACQUIRE told short 3000 NOTIFY 100 mine");
    let absent = [
        "RWLOCK.RLOCK read",
        "LOCK.ACQUIRE shared",
        "RWLOCK.WLOCK write",
    ];
    for (command, limit) in absent.into_iter().zip(["", " LIMIT 2", ""]) {
        for token in ["a", "b", "c"] {
            let line = format!("{command} {token} 3000{limit} KEEP 1000");
            assert_eq!(c.call(&line), Reply::Nil);
        }
    }
    assert_eq!(c.call("LOCK.ACQUIRE k first 3000 KEEP 1000"), Reply::Nil);
    let next = server.blocked("LOCK.ACQUIRE k next 3000 BLOCK 20000");
    assert_eq!(c.call("LOCK.ACQUIRE k behind 3000 KEEP 300"), Reply::Nil);
    let short = server.blocked("LOCK.ACQUIRE k short 3000 BLOCK 100");
    assert_eq!(short.reply(), Reply::Nil);
    assert!(heard.text().starts_with("timeout "));
    c.until_waiters("k", &["first", "next", "behind"]);
    heard.fence("told", "me");
    assert_eq!(c.info("lock_guard"), "open");
    // All graces that would have ended begin only now.
    for key in ["read", "shared", "write"] {
        assert_eq!(c.waiters(key), ["a", "b", "c"]);
    }
    c.int("LOCK.ACQUIRE k first 3000");
    assert!(next.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k first"), 1);
    next.fence();
}

fn no_lease_is_longer_than_the_setting(kind: Kind) {
    let server = Server::start_with(kind, &["max-ttl", "2000"]);
    let mut c = server.client();
    assert_eq!(c.info("lock_guard"), "off");
    c.int("LOCK.ACQUIRE k me 2000");
    for line in [
        "LOCK.ACQUIRE k me 2001",
        "RWLOCK.RLOCK k me 2001",
        "RWLOCK.WLOCK k me 2001",
        "LOCK.MACQUIRE 1 k me 2001",
        "LOCK.RENEW k me 2001",
        "LOCK.RELEASE k me ATLEAST 2001",
    ] {
        let error = c.error(line);
        assert!(error.contains("lock.max-ttl"), "{line}");
        c.text("MULTI");
        c.text(line);
        assert_eq!(c.error("EXEC"), error, "{line}");
        let script = "return redis.pcall(unpack(ARGV))";
        let words: Vec<_> = ["EVAL", script, "0"]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        assert_eq!(c.send(&words), Reply::Error(error), "{line}");
    }
    assert_eq!(c.int("LOCK.RENEW k me 2000"), 1);
}

fn settings_that_contradict_each_other_are_refused(kind: Kind) {
    let module = module().display().to_string();
    for (arguments, why) in [
        (["guard", "restart"], "lock.guard needs lock.max-ttl"),
        (["max-ttl", "999"], "at least 1000 milliseconds"),
    ] {
        let options = [&["--loadmodule", &module[..]], &arguments[..]].concat();
        let log = Server::log_of_failed_start(kind, &options);
        assert!(log.contains(why), "{log}");
    }
    let server = Server::start(kind);
    let mut c = server.client();
    for line in [
        "CONFIG SET lock.guard failover",
        "CONFIG SET lock.max-ttl 999",
        "CONFIG SET lock.guard restart lock.max-ttl 0",
    ] {
        c.refused_saying(line, "lock.max-ttl");
    }
    // In any order.
    c.text("CONFIG SET lock.guard failover lock.max-ttl 3000");
    c.refused_saying("CONFIG SET lock.max-ttl 0", "lock.guard needs");
    c.until_info("lock_guard", "restart");
    let waits = server.blocked("LOCK.ACQUIRE k me 3000 BLOCK 20000");
    c.text("CONFIG SET lock.max-ttl 0 lock.guard off");
    waits.reply().as_int();
    assert_eq!(c.info("lock_guard"), "off");
}
