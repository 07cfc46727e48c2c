//! The guard where replicas hang on replicas, load beside what they have, come and go by hand, and
//! where a server reloads, loads the module late, or stands still.

use std::time::{Duration, Instant};

use super::group::Group;
use super::guarded_ms;
use super::sentinel::{AFTER_FAILOVER, FAILOVER, IN_QUORUM, LEASE, QUORUM};
use crate::harness::{module, wait_for, Kind, Raw, Reply, Server, MODULE_COMMAND, SYNCED};

on_every_server![
    a_chain_of_replicas_hears_the_beats_and_waits,
    a_member_that_comes_back_counts_from_then_on,
    a_reload_changes_nothing,
    a_module_that_is_loaded_late_waits,
    a_primary_that_stood_still_needs_its_members_again,
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
    let mut first = Server::start_with(kind, &[&FAILOVER[..], &diskless].concat());
    let mut middle = Server::start_with(kind, &[&FAILOVER[..], &diskless, &swapdb].concat());
    // It knows of longer leases only what it hears.
    let less = ["guard", "failover", "max-ttl", "1000", "guard-slack", "0"];
    let last = Server::start_with(kind, &[&less[..], &swapdb].concat());
    let (mut old, mut c, mut d) = (first.client(), middle.client(), last.client());
    old.until_info("lock_guard", "open");
    old.int("LOCK.ACQUIRE loaded owner 2000");
    c.text("SET what it-had");
    middle.follow(&first);
    middle.wait_until_it_follows(&first);
    assert!(middle.log().contains("to parser"), "{}", middle.log());
    assert_eq!(c.int("EXISTS what"), 0);
    last.follow(&middle);
    wait_for("a beat at the end of the chain", || {
        let log = last.log();
        log.contains("a lease may last 2000 ms yet").then_some(())
    });
    // That of its own start ends, too.
    c.until_info("lock_guard", "open");
    let known = old.int("LOCK.ACQUIRE known owner 2000");
    middle.wait_until_it_follows(&first);
    // What comes now never arrives.
    middle.lose_primary();
    let sent = Instant::now();
    old.int("LOCK.ACQUIRE k first 2000");
    first.kill();
    let promoted = Instant::now();
    c.text("REPLICAOF NO ONE");
    assert_eq!(c.info("lock_guard"), "promotion");
    assert_eq!(c.int("LOCK.CHECK known owner"), known);
    assert_eq!(c.int("LOCK.RENEW known owner 2000"), 1);
    c.int("LOCK.ACQUIRE k second 2000 BLOCK 20000");
    assert!(sent.elapsed() > LEASE && promoted.elapsed() > AFTER_FAILOVER);
    last.wait_until_it_follows(&middle);
    middle.kill();
    d.text("REPLICAOF NO ONE");
    assert!(guarded_ms(&mut d) > 2_000, "{}", guarded_ms(&mut d));
}

/// By hand: one replica is promoted, grants something, and follows again.
fn a_member_that_comes_back_counts_from_then_on(kind: Kind) {
    let group = Group::start(kind, &QUORUM);
    group.follow(group.primary.port);
    let [away, other] = &group.replicas;
    let (mut c, mut a, mut o) = (group.primary.client(), away.client(), other.client());
    c.until_info("lock_guard", "open");
    a.text("REPLICAOF NO ONE");
    assert_eq!(a.call("LOCK.ACQUIRE mine me 2000"), Reply::Nil);
    assert_eq!(a.info("lock_guard"), "alone");
    c.until_info("lock_guard_members_fresh", "2");
    // The other one may have come a moment later.
    c.int("LOCK.ACQUIRE k me 2000 BLOCK 20000");
    let back = Instant::now();
    away.follow(&group.primary);
    away.wait_until_it_follows(&group.primary);
    c.until_info("lock_guard_members_fresh", "3");
    c.int("LOCK.ACQUIRE another me 2000");
    // Now all hangs on the one that came back.
    o.text("REPLICAOF NO ONE");
    wait_for("the guard", || {
        (c.info("lock_guard") != "open").then_some(())
    });
    assert_eq!(c.info("lock_guard"), "restart");
    assert_eq!(c.call("LOCK.ACQUIRE free me 2000"), Reply::Nil);
    c.int("LOCK.ACQUIRE free me 2000 BLOCK 20000");
    assert!(back.elapsed() > IN_QUORUM, "{:?}", back.elapsed());
    // The promoted one is alone for ever.
    assert_eq!(o.call("LOCK.ACQUIRE mine me 2000"), Reply::Nil);
}

fn a_reload_changes_nothing(kind: Kind) {
    let options = ["guard", "restart", "max-ttl", "4000"];
    let mut server = Server::start_with(kind, &[&options[..], &SYNCED].concat());
    let mut c = server.client();
    c.until_info("lock_guard", "open");
    let fence = c.int("LOCK.ACQUIRE k me 4000");
    let guards = c.info("lock_guards");
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        c.text(reload);
        assert_eq!(c.info("lock_guard"), "open", "{reload}");
        assert_eq!(c.int("LOCK.CHECK k me"), fence, "{reload}");
        assert_eq!(c.int("LOCK.RENEW k me 4000"), 1, "{reload}");
        assert_eq!(c.call("LOCK.ACQUIRE k other 4000"), Reply::Nil, "{reload}");
    }
    assert_eq!(c.info("lock_guards"), guards);
    server.kill();
    // It did not write at once what it has now.
    server.start_again_with(&["--appendfsync", "everysec"]);
    let (mut c, started) = (server.client(), Instant::now());
    c.text("CONFIG SET appendfsync always");
    let before = guarded_ms(&mut c);
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        c.text(reload);
        assert_eq!(c.info("lock_guard"), "restart", "{reload}");
        // A file says how long the leases of its time may last.
        assert!(guarded_ms(&mut c) <= 5_000, "{reload}");
        let most = u64::try_from(started.elapsed().as_millis()).unwrap() + 10;
        assert!(guarded_ms(&mut c) + most > before, "{reload}");
        assert_eq!(c.int("LOCK.CHECK k me"), fence, "{reload}");
        assert_eq!(c.int("LOCK.RENEW k me 4000"), 1, "{reload}");
        assert_eq!(c.call("LOCK.ACQUIRE free me 4000"), Reply::Nil, "{reload}");
    }
    let waits = server.blocked("LOCK.ACQUIRE free me 4000 BLOCK 20000");
    c.text("DEBUG RELOAD");
    assert!(!waits.is_answered());
    waits.fence();
    assert!(started.elapsed() > Duration::from_millis(before - 10));
}

fn a_module_that_is_loaded_late_waits(kind: Kind) {
    let server = Server::start_without_module(kind, &MODULE_COMMAND);
    let mut c = server.client();
    let begun = Instant::now();
    c.text(&format!(
        "MODULE LOAD {} guard restart max-ttl 1500",
        module().display()
    ));
    assert_eq!(c.call("LOCK.ACQUIRE k me 1500"), Reply::Nil);
    assert_eq!(c.info("lock_guard"), "restart");
    let waits = server.blocked("LOCK.ACQUIRE k me 1500 BLOCK 20000");
    waits.fence();
    assert!(begun.elapsed() > Duration::from_millis(2_500));
    assert_eq!(c.info("lock_guard"), "open");
}

fn a_primary_that_stood_still_needs_its_members_again(kind: Kind) {
    let group = Group::start(kind, &QUORUM);
    group.follow(group.primary.port);
    let [new, other] = &group.replicas;
    let (primary, mut n) = (&group.primary, new.client());
    let mut c = primary.client();
    c.until_info("lock_guard", "open");
    // The replicas stay. What it has heard of them is old when it goes on.
    let replies = stand_still(primary, |callers| {
        for (n, caller) in callers.iter_mut().enumerate() {
            caller.send(&format!("LOCK.ACQUIRE k{n} me 2000"));
        }
        let begun = Instant::now();
        wait_for("C", || (begun.elapsed() > IN_QUORUM).then_some(()));
    });
    assert!(replies.iter().all(|reply| reply == "$-1"), "{replies:?}");
    let waits = primary.later("LOCK.ACQUIRE k me 2000 BLOCK 20000");
    waits.fence();
    assert_eq!(c.info("lock_guard_members_fresh"), "3");
    // The replicas go, and the new primary grants what the old one is asked for, too.
    let held = c.int("LOCK.ACQUIRE held me 2000");
    new.wait_until_it_follows(primary);
    let replies = stand_still(primary, |callers| {
        n.text("REPLICAOF NO ONE");
        other.follow(new);
        for (n, caller) in callers.iter_mut().enumerate() {
            caller.send(match n % 2 {
                0 => "LOCK.ACQUIRE fresh old 2000",
                _ => "LOCK.RENEW held me 2000",
            });
        }
        assert!(n.int("LOCK.ACQUIRE fresh new 2000 BLOCK 20000") > held);
        assert!(n.int("LOCK.ACQUIRE held new 2000 BLOCK 20000") > held);
    });
    let is_refused =
        |reply: &String| ["$-1", ":0"].contains(&&reply[..]) || reply.starts_with("-TRYAGAIN");
    assert!(replies.iter().all(is_refused), "{replies:?}");
    c.until_info("lock_guard", "alone");
    assert_eq!(c.call("LOCK.ACQUIRE free me 2000"), Reply::Nil);
    assert_eq!(n.int("LOCK.RENEW fresh new 2000"), 1);
}

/// Stops the server while callers ask it for something, and answers what they get afterwards.
pub(super) fn stand_still(server: &Server, meanwhile: impl FnOnce(&mut [Raw])) -> Vec<String> {
    let mut callers: Vec<_> = (0..8).map(|_| server.raw()).collect();
    server.signal("STOP");
    meanwhile(&mut callers);
    server.signal("CONT");
    callers.iter_mut().map(|c| c.line().unwrap()).collect()
}
