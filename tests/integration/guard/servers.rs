//! The guard where replicas hang on replicas and load beside what they have, and where a server
//! reloads or loads the module late.

use super::{guarded_ms, ms_since, open, second_has_it, FAILOVER, SECOND, TTL_MS};
use crate::harness::{
    module, start_by, wait_for, Clock, Kind, Reply, Server, Setup, MODULE_COMMAND, SYNCED,
};

on_every_server![
    a_chain_of_replicas_hears_the_beats_and_waits,
    a_reload_changes_nothing,
    a_module_that_is_loaded_late_waits,
];

/// The middle one has loaded its data beside what it had.
fn a_chain_of_replicas_hears_the_beats_and_waits(kind: Kind) {
    let diskless = [
        "--repl-diskless-sync",
        "yes",
        "--repl-diskless-sync-delay",
        "0",
    ];
    let swapdb = ["--repl-diskless-load", "swapdb"];
    let clock = Clock::ahead_by_us(0);
    let start = |options: &[&[&str]]| start_by(&clock, kind, &options.concat());
    let mut first = start(&[&FAILOVER, &diskless]);
    let mut middle = start(&[&FAILOVER, &diskless, &swapdb]);
    // It knows of longer leases only what it hears.
    let less = ["guard", "failover", "max-ttl", "1000", "guard-slack", "0"];
    let last = start(&[&less, &swapdb]);
    let (mut old, mut c, mut d) = (first.client(), middle.client(), last.client());
    open(&clock, &mut old);
    old.int("LOCK.ACQUIRE loaded owner 120000");
    c.text("SET what it-had");
    middle.follow(&first);
    middle.wait_until_it_follows(&first);
    assert!(middle.log().contains("to parser"), "{}", middle.log());
    assert_eq!(c.int("EXISTS what"), 0);
    last.follow(&middle);
    wait_for("a beat at the end of the chain", || {
        let log = last.log();
        log.contains("a lease may last 120000 ms yet").then_some(())
    });
    // That of its own start ends, too.
    open(&clock, &mut c);
    let known = old.int("LOCK.ACQUIRE known owner 120000");
    middle.wait_until_it_follows(&first);
    // What comes now never arrives.
    middle.lose_primary();
    let sent_us = old.now_us();
    old.int("LOCK.ACQUIRE k first 120000");
    first.kill();
    c.text("REPLICAOF NO ONE");
    c.until_info("lock_guard", "promotion");
    assert_eq!(c.int("LOCK.CHECK known owner"), known);
    assert_eq!(c.int("LOCK.RENEW known owner 120000"), 1);
    second_has_it(&middle, middle.later(SECOND), sent_us, Some(&clock));
    last.wait_until_it_follows(&middle);
    middle.kill();
    d.text("REPLICAOF NO ONE");
    assert!(guarded_ms(&mut d) > 10_000, "{}", guarded_ms(&mut d));
}

fn a_reload_changes_nothing(kind: Kind) {
    let options = ["guard", "restart", "max-ttl", "120000"];
    let clock = Clock::ahead_by_us(0);
    let mut server = start_by(&clock, kind, &[&options[..], &SYNCED].concat());
    let mut c = server.client();
    open(&clock, &mut c);
    let fence = c.int("LOCK.ACQUIRE k me 120000");
    let guards = c.info("lock_guards");
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        c.text(reload);
        assert_eq!(c.info("lock_guard"), "open", "{reload}");
        assert_eq!(c.int("LOCK.CHECK k me"), fence, "{reload}");
        assert_eq!(c.int("LOCK.RENEW k me 120000"), 1, "{reload}");
        assert_eq!(
            c.call("LOCK.ACQUIRE k other 120000"),
            Reply::Nil,
            "{reload}"
        );
    }
    assert_eq!(c.info("lock_guards"), guards);
    server.kill();
    server.start_again();
    let mut c = server.client();
    let (begun_us, before_ms) = (c.now_us(), guarded_ms(&mut c));
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        c.text(reload);
        assert_eq!(c.info("lock_guard"), "restart", "{reload}");
        // A file says how long the leases of its time may last.
        assert!(guarded_ms(&mut c) <= TTL_MS + 1_000, "{reload}");
        let left_ms = guarded_ms(&mut c);
        assert!(
            left_ms + ms_since(begun_us, &mut c) + 1 >= before_ms,
            "{reload}"
        );
        assert_eq!(c.int("LOCK.CHECK k me"), fence, "{reload}");
        assert_eq!(c.int("LOCK.RENEW k me 120000"), 1, "{reload}");
        assert_eq!(
            c.call("LOCK.ACQUIRE free me 120000"),
            Reply::Nil,
            "{reload}"
        );
    }
    let waits = server.blocked("LOCK.ACQUIRE free me 120000 BLOCK 0");
    c.text("DEBUG RELOAD");
    assert_eq!(c.waiters("free"), ["me"]);
    clock.reply(waits).as_int();
    let took_ms = ms_since(begun_us, &mut c);
    assert!(took_ms + 1 >= before_ms, "{took_ms} of {before_ms}");
}

fn a_module_that_is_loaded_late_waits(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let options = MODULE_COMMAND.map(String::from).to_vec();
    let setup = Setup {
        options,
        ..Setup::default()
    };
    let server = Server::start_as(kind, setup.with_clock(&clock));
    let mut c = server.client();
    let begun_us = c.now_us();
    c.text(&format!(
        "MODULE LOAD {} guard restart max-ttl 120000",
        module().display()
    ));
    assert_eq!(c.call("LOCK.ACQUIRE k me 120000"), Reply::Nil);
    assert_eq!(c.info("lock_guard"), "restart");
    clock.reply(server.later("LOCK.ACQUIRE k me 120000 BLOCK 0"));
    let took_ms = ms_since(begun_us, &mut c);
    assert!(took_ms > TTL_MS + 1_000, "{took_ms}");
    assert_eq!(c.info("lock_guard"), "open");
}
