//! The guard: after a start or a promotion a server makes no new grant until every lease is over
//! that it may lack.
//!
//! The world of servers in `core/src/engine/simulation` proves the rules, and the campaign loses
//! records of real servers, with the guard and without it. Here are files, settings, hand-overs and slots. The
//! clocks step, so that leases are long and tests are short; times are those of the servers.

mod cluster;
mod group;
mod lingering;
mod servers;

use crate::harness::{
    module, start_by, wait_for, Client, Clock, Kind, Later, Reply, Server, SYNCED,
};
use crate::places::fixture::{queued, Subscriber};

on_every_server![
    a_server_that_starts_waits_out_what_it_lacks,
    a_start_waits_whatever_file_it_has_loaded,
    what_a_script_has_told_and_no_file_has_is_waited_out,
    a_longer_lease_that_came_in_is_waited_out,
    a_wall_clock_set_forward_begins_it_anew,
    timeouts_run_and_graces_begin_anew_after_it,
    no_lease_is_longer_than_the_setting,
    settings_that_contradict_each_other_are_refused,
    leases_from_before_a_setting_are_waited_out,
];

const TTL_MS: u64 = 120_000;

/// The guard, with the longest lease of these tests.
pub(super) const RESTART: [&str; 4] = ["guard", "restart", "max-ttl", "120000"];
const FAILOVER: [&str; 6] = [
    "guard",
    "failover",
    "max-ttl",
    "120000",
    "guard-slack",
    "30000",
];
/// How much real time may pass between two commands of a test, at most.
const LATE_MS: u64 = 10_000;

/// Lets time pass until the guard is open.
pub(super) fn open(clock: &Clock, c: &mut Client) {
    clock.until_info(c, "lock_guard", "open");
}

/// How long after that instant it is by the server's clock.
pub(super) fn ms_since(us: u64, c: &mut Client) -> u64 {
    (c.now_us() - us) / 1_000
}

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

/// The request for a lock of which another one's hold is lost.
const SECOND: &str = "LOCK.ACQUIRE k second 120000 BLOCK 0";

/// Lets time pass until the second token has the lock, if there is a guard. That must be after the
/// lease of the first one, or without a guard before its end.
#[track_caller]
fn second_has_it(server: &Server, waits: Later, sent_us: u64, clock: Option<&Clock>) {
    let reply = match clock {
        Some(clock) => clock.reply(waits),
        None => waits.reply(),
    };
    reply.as_int();
    let took_ms = ms_since(sent_us, &mut server.client());
    assert_eq!(took_ms > TTL_MS, clock.is_some(), "{took_ms}");
}

fn a_server_that_starts_waits_out_what_it_lacks(kind: Kind) {
    for is_guarded in [true, false] {
        let clock = Clock::ahead_by_us(0);
        let options: &[&str] = if is_guarded { &RESTART } else { &[] };
        let mut server = start_by(&clock, kind, options);
        let mut c = server.client();
        if is_guarded {
            assert_eq!(c.info("lock_guard"), "restart");
            let left_ms = guarded_ms(&mut c);
            assert!((TTL_MS + 1_000 - LATE_MS..=TTL_MS + 1_000).contains(&left_ms));
            assert_eq!(c.call("LOCK.ACQUIRE k early 120000"), Reply::Nil);
            open(&clock, &mut c);
        }
        let sent_us = c.now_us();
        c.int("LOCK.ACQUIRE k first 120000");
        server.kill();
        server.start_again();
        let waits = server.later(SECOND);
        if is_guarded {
            wait_for("the waiter", || (server.waits().0 == 1).then_some(()));
            let info = server.client().call("LOCK.INFO k");
            assert!(info.field("guard").as_int() > 1_000, "{info:?}");
            assert_eq!(info.field("mode").as_bytes(), b"free");
        }
        second_has_it(&server, waits, sent_us, is_guarded.then_some(&clock));
        if is_guarded {
            assert_logged(&server, "restart", ENDED);
        } else {
            assert!(!server.log().contains("guard:"));
        }
    }
}

/// A file that is whole may lack what somebody has heard of.
fn a_start_waits_whatever_file_it_has_loaded(kind: Kind) {
    // Longer than the wait after a start: a promotion may have gone on before it.
    let failover = [&FAILOVER[..5], &["60000"]].concat();
    for (options, ms) in [(&RESTART[..], 121_000), (&failover, 180_000)] {
        let clock = Clock::ahead_by_us(0);
        let mut server = start_by(&clock, kind, &[options, &SYNCED].concat());
        let mut c = server.client();
        open(&clock, &mut c);
        let fence = c.int("LOCK.ACQUIRE k me 120000");
        server.kill();
        server.start_again();
        let mut c = server.client();
        assert_eq!(c.info("lock_guard"), "restart");
        let left_ms = guarded_ms(&mut c);
        assert!((ms - LATE_MS..=ms).contains(&left_ms), "{left_ms}");
        assert_eq!(c.int("LOCK.CHECK k me"), fence);
        assert_eq!(c.call("LOCK.ACQUIRE other me 120000"), Reply::Nil);
    }
}

/// The server delivers what a script publishes while the script runs, and writes its effects when
/// it ends.
fn what_a_script_has_told_and_no_file_has_is_waited_out(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let options = [&RESTART[..], &SYNCED, &["--lua-time-limit", "50"]].concat();
    let mut server = start_by(&clock, kind, &options);
    let mut c = server.client();
    open(&clock, &mut c);
    c.int("LOCK.ACQUIRE k first 120000");
    let mut channel = Subscriber::new(&server, "SUBSCRIBE told");
    let sent_us = c.now_us();
    c.text("LOCK.ACQUIRE k told 120000 NOTIFY 0 told");
    let script = "redis.call('LOCK.RELEASE', KEYS[1], 'first') while true do end";
    let mut runs = server.raw();
    runs.send_together(&[&["EVAL", script, "1", "k"]]).unwrap();
    channel.fence("k", "told");
    server.shut_down_by("SHUTDOWN NOSAVE");
    server.start_again();
    assert_eq!(server.client().info("lock_guard"), "restart");
    second_has_it(&server, server.later(SECOND), sent_us, Some(&clock));
}

fn a_longer_lease_that_came_in_is_waited_out(kind: Kind) {
    for is_moved in [false, true] {
        let elsewhere = Server::start(kind);
        let mut there = elsewhere.client();
        there.int("LOCK.ACQUIRE k owner 1200000");
        let clock = Clock::ahead_by_us(0);
        let mut server = start_by(&clock, kind, &RESTART);
        let mut c = server.client();
        open(&clock, &mut c);
        if is_moved {
            there.text(&format!("MIGRATE 127.0.0.1 {} k 0 5000", server.port));
        } else {
            let payload = there.call("DUMP k");
            c.restore("k 1200000", payload.as_bytes()).assert_ok();
        }
        wait_for("the longer lease to be noticed", || {
            server.log().contains("lock.max-ttl is less").then_some(())
        });
        // Its loss is one of those that the next guard is for, so only the file tells of it.
        assert_eq!(c.int("DEL k"), 1);
        c.text("SAVE");
        server.kill();
        server.start_again();
        assert!(guarded_ms(&mut server.client()) > 600_000);
        assert!(server.log().contains("lock.max-ttl is less"));
    }
}

/// A server with an open guard, and its wall clock.
fn open_with_clock(kind: Kind) -> (Server, Clock) {
    let clock = Clock::ahead_by_us(0);
    let server = start_by(&clock, kind, &RESTART);
    open(&clock, &mut server.client());
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
    let (server, clock) = open_with_clock(kind);
    let mut c = server.client();
    let sent_us = c.now_us();
    c.int("LOCK.ACQUIRE k first 120000");
    let waits = server.blocked("LOCK.ACQUIRE k next 120000 BLOCK 0");
    let all = server.blocked("LOCK.MACQUIRE 2 j k all 120000 BLOCK 0");
    let shorter = server.blocked("LOCK.ACQUIRE k last 100000 BLOCK 0");
    c.text("CONFIG SET lock.max-ttl 100000");
    // The leases of the old setting end.
    clock.pass_until("their end", || {
        assert_eq!(c.int("LOCK.RENEW k first 100000"), 1);
        (ms_since(sent_us, &mut c) > TTL_MS).then_some(())
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
    c.until("LOCK.ACQUIRE free me 120000", Reply::Nil);
    assert_eq!(c.info("lock_guard"), "clock");
    open(&clock, &mut c);
    assert_logged(&server, "clock", ENDED);
    c.int("LOCK.ACQUIRE k me 120000");
    let waits = server.blocked("LOCK.ACQUIRE k next 120000 BLOCK 0");
    // By this clock the hold is over.
    clock.set_ahead_by_us(200_000_000);
    c.until_info("lock_guard", "clock");
    assert_eq!(c.waiters("k"), ["next"]);
    assert_eq!(c.call("LOCK.ACQUIRE free me 120000"), Reply::Nil);
    drop(waits);
}

fn timeouts_run_and_graces_begin_anew_after_it(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let server = start_by(&clock, kind, &RESTART);
    let mut c = server.client();
    let mut heard = Subscriber::new(&server, "SUBSCRIBE mine");
    queued(&mut c, "LOCK.ACQUIRE told me 120000 NOTIFY 0 mine");
    queued(&mut c, "LOCK.ACQUIRE told short 120000 NOTIFY 100 mine");
    let absent = [
        "RWLOCK.RLOCK read",
        "LOCK.ACQUIRE shared",
        "RWLOCK.WLOCK write",
    ];
    for (command, limit) in absent.into_iter().zip(["", " LIMIT 2", ""]) {
        for token in ["a", "b", "c"] {
            let line = format!("{command} {token} 120000{limit} KEEP 20000");
            assert_eq!(c.call(&line), Reply::Nil);
        }
    }
    let keeps = "LOCK.ACQUIRE k first 120000 KEEP 20000";
    assert_eq!(c.call(keeps), Reply::Nil);
    let next = server.blocked("LOCK.ACQUIRE k next 120000 BLOCK 0");
    let behind = "LOCK.ACQUIRE k behind 120000 KEEP 20000";
    assert_eq!(c.call(behind), Reply::Nil);
    let short = server.blocked("LOCK.ACQUIRE k short 120000 BLOCK 100");
    assert_eq!(short.reply(), Reply::Nil);
    assert!(heard.text().starts_with("timeout "));
    c.until_waiters("k", &["first", "next", "behind"]);
    open(&clock, &mut c);
    heard.fence("told", "me");
    // All graces that would have ended begin only now.
    for key in ["read", "shared", "write"] {
        assert_eq!(c.waiters(key), ["a", "b", "c"]);
    }
    c.int(keeps);
    assert_eq!(c.waiters("k"), ["next", "behind"]);
    assert_eq!(c.int("LOCK.RELEASE k first"), 1);
    next.fence();
}

fn no_lease_is_longer_than_the_setting(kind: Kind) {
    let server = Server::start_with(kind, &["max-ttl", "60000"]);
    let mut c = server.client();
    assert_eq!(c.info("lock_guard"), "off");
    c.int("LOCK.ACQUIRE k me 60000");
    for line in [
        "LOCK.ACQUIRE k me 60001",
        "RWLOCK.RLOCK k me 60001",
        "RWLOCK.WLOCK k me 60001",
        "LOCK.MACQUIRE 1 k me 60001",
        "LOCK.RENEW k me 60001",
        "LOCK.RELEASE k me ATLEAST 60001",
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
    assert_eq!(c.int("LOCK.RENEW k me 60000"), 1);
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
    c.text("CONFIG SET lock.guard failover lock.max-ttl 120000");
    c.refused_saying("CONFIG SET lock.max-ttl 0", "lock.guard needs");
    c.until_info("lock_guard", "restart");
    let waits = server.blocked("LOCK.ACQUIRE k me 120000 BLOCK 0");
    c.text("CONFIG SET lock.max-ttl 0 lock.guard off");
    waits.reply().as_int();
    assert_eq!(c.info("lock_guard"), "off");
}
