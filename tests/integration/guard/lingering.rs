//! Holds with LINGER after a promotion or a restart: nobody knows whether their connections have
//! ended them.

use super::group::{Group, MODES};
use super::{open, start_by};
use crate::harness::{Clock, Kind, Reply, SYNCED};

on_every_server![a_hold_that_lingers_is_not_used_after_a_restart,];
// A busy machine waits for C.
on_every_server_at_night![a_planned_hand_over_keeps_what_lingers];

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
