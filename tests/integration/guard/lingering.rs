//! Holds with LINGER after a promotion or a restart: nobody knows whether their connections have
//! ended them.

use super::group::{Group, MODES};
use super::{open, start_by};
use crate::harness::{Client, Clock, CutLink, Kind, Reply, Server, SYNCED};

on_every_server![
    a_hold_that_lingers_is_not_used_after_a_promotion,
    a_hold_that_lingers_is_not_used_after_a_restart,
    only_a_guard_says_in_a_value_that_it_lingers,
    a_renewal_says_that_it_lingers_once_there_is_a_guard,
];
// A busy machine waits for C.
on_every_server_at_night![a_planned_hand_over_keeps_what_lingers];

/// The old primary ends a hold with its connection and grants the lock again. Both records are
/// lost.
fn a_hold_that_lingers_is_not_used_after_a_promotion(kind: Kind) {
    for options in MODES {
        let group = Group::start(kind, &options);
        let link = CutLink::to(group.primary.port);
        group.follow(link.port);
        let new = &group.replicas[0];
        let (mut old, mut c) = (group.primary.client(), new.client());
        group.until_guard(&mut old, "open");
        let mut owner = group.primary.client();
        owner.int("LOCK.ACQUIRE bound owner 120000 LINGER 0");
        owner.int("LOCK.ACQUIRE permit owner 120000 LIMIT 2 LINGER 0");
        owner.int("LOCK.MACQUIRE 2 one other owner 120000 LINGER 0");
        owner.int("LOCK.ACQUIRE renewed owner 120000 LINGER 0");
        assert_eq!(owner.int("LOCK.RENEW renewed owner 120000"), 1);
        owner.int("LOCK.ACQUIRE plain owner 120000");
        owner.int("LOCK.ACQUIRE unbound owner 120000 LINGER 0");
        owner.int("LOCK.ACQUIRE unbound owner 120000");
        new.wait_until_it_follows(&group.primary);
        link.stall();
        drop(owner);
        old.int("LOCK.ACQUIRE bound second 120000 BLOCK 0");
        c.text("REPLICAOF NO ONE");
        for key in ["bound", "permit", "one", "other", "renewed"] {
            assert_eq!(c.int(&format!("LOCK.RENEW {key} owner 120000")), 0, "{key}");
            assert_eq!(c.call(&format!("LOCK.CHECK {key} owner")), Reply::Nil);
            c.refused(&format!("LOCK.EXEC {key} owner SET x 1"), "NOTHELD");
            let again = c.call(&format!("LOCK.ACQUIRE {key} owner 120000"));
            assert_eq!(again, Reply::Nil, "{key}");
        }
        for key in ["plain", "unbound"] {
            assert!(c.int(&format!("LOCK.CHECK {key} owner")) > 0, "{key}");
        }
        if options[1] == "failover" {
            assert_eq!(c.int("LOCK.RENEW plain owner 120000"), 1);
            assert_eq!(c.int("LOCK.RENEW unbound owner 120000"), 1);
        }
        assert_eq!(c.int("LOCK.RELEASE bound owner"), 1);
    }
}

/// The file may lack the end of the hold and the next grant.
fn a_hold_that_lingers_is_not_used_after_a_restart(kind: Kind) {
    let guard = ["guard", "restart", "max-ttl", "120000"];
    let clock = Clock::ahead_by_us(0);
    let mut server = start_by(&clock, kind, &[guard, SYNCED].concat());
    let mut c = server.client();
    open(&clock, &mut c);
    c.int("LOCK.ACQUIRE bound me 120000 LINGER 120000");
    let fence = c.int("LOCK.ACQUIRE plain me 120000");
    server.kill();
    server.start_again_with(&["--appendfsync", "everysec"]);
    let mut c = server.client();
    assert_eq!(c.int("LOCK.RENEW bound me 120000"), 0);
    assert_eq!(c.call("LOCK.CHECK bound me"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW plain me 120000"), 1);
    assert_eq!(c.int("LOCK.CHECK plain me"), fence);
}

/// Nothing is missing then, so the rule does not count.
fn a_planned_hand_over_keeps_what_lingers(kind: Kind) {
    let group = Group::start(kind, &MODES[0]);
    group.follow(group.primary.port);
    let new = &group.replicas[0];
    let (mut old, mut c) = (group.primary.client(), new.client());
    group.until_guard(&mut old, "open");
    group.let_it_say_so();
    let fence = old.int("LOCK.ACQUIRE k me 120000 LINGER 120000");
    new.wait_until_it_follows(&group.primary);
    old.text(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", new.port));
    c.until_info("role", "master");
    c.until_info("lock_guard", "open");
    assert_eq!(c.int("LOCK.RENEW k me 120000"), 1);
    assert_eq!(c.int("LOCK.ACQUIRE k me 120000 LINGER 120000"), fence);
    assert_eq!(c.int("LOCK.RENEW k me 120000"), 1);
    assert_eq!(c.int("LOCK.CHECK k me"), fence);
}

/// Whether a lock says that its hold lingers.
fn is_marked(c: &mut Client) -> bool {
    let dump = c.call("DUMP k");
    let begins = |with: [u8; 3]| dump.as_bytes().windows(3).any(|three| three == with);
    assert!(begins([3, 1, 129]) != begins([1, 1, 1]));
    begins([3, 1, 129])
}

fn a_renewal_says_that_it_lingers_once_there_is_a_guard(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k me 120000 LINGER 0");
    c.text("CONFIG SET lock.max-ttl 120000 lock.guard-slack 0 lock.guard failover");
    assert!(!is_marked(&mut c));
    assert_eq!(server.client().int("LOCK.RENEW k me 120000"), 1);
    assert!(is_marked(&mut c));
    // From now on it does not count, as after a start.
    assert_eq!(server.client().int("LOCK.RENEW k me 120000"), 0);
}

fn only_a_guard_says_in_a_value_that_it_lingers(kind: Kind) {
    let restart = ["guard", "restart", "max-ttl", "120000"];
    for options in [&[][..], &restart, &MODES[0]] {
        let clock = Clock::ahead_by_us(0);
        let server = start_by(&clock, kind, options);
        let mut c = server.client();
        if !options.is_empty() {
            open(&clock, &mut c);
        }
        c.int("LOCK.ACQUIRE k me 120000 LINGER 0");
        assert_eq!(is_marked(&mut c), !options.is_empty(), "{options:?}");
    }
}
