//! Holds with LINGER after a restart: nobody knows whether their connections have ended them.

use super::open;
use crate::harness::{start_by, Clock, Kind, Reply, SYNCED};

on_every_server![a_hold_that_lingers_is_not_used_after_a_restart];

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
