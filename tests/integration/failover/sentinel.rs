//! Three sentinels, and a primary that is stopped and goes on, or that hands over itself. The campaign
//! kills it under load.

use std::time::{Duration, Instant};

use super::pair;
use crate::harness::{wait_for, Kind, Reply, SentinelGroup, Sentinels};

on_every_server_at_night![sentinels_replace_a_primary_that_is_stopped];
on_servers![[valkey_9 Valkey9 "nightly"] a_coordinated_failover_ends_the_guard_early];

fn sentinels_replace_a_primary_that_is_stopped(kind: Kind) {
    let (old, new) = pair(kind);
    // The other replica would accept no writes while this one is stopped.
    old.client().text("CONFIG SET min-replicas-to-write 1");
    let sentinels = Sentinels::watch(&old);
    let mut c = old.client();
    let held = c.int("LOCK.ACQUIRE held a 600000");
    c.int("LOCK.ACQUIRE k dead 3000");
    let b = old.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    let d = old.blocked("LOCK.ACQUIRE held d 600000 BLOCK 0");
    assert_eq!(c.int("WAIT 1 10000"), 1);
    old.signal("STOP");
    assert!(b.is_pending() && d.is_pending());
    sentinels.wait_for_another_than(old.port);
    let mut n = new.client();
    n.until_info("role", "master");
    n.until("LOCK.INFO k", Reply::Nil);
    let fence = n.int("LOCK.ACQUIRE k e 600000");
    old.signal("CONT");
    // The sentinels make it a replica, and close its connections.
    for waiter in [b, d] {
        waiter.sent_away();
    }
    old.client().until_info("role", "slave");
    new.wait_for_its_replica();
    old.assert_same_as(&new, "after the failover");
    assert_eq!(old.client().holders("k"), ["e"]);
    assert_eq!(old.client().holders("held"), ["a"]);
    assert_eq!(n.int("LOCK.ACQUIRE held a 600000"), held);
    assert_eq!(n.call("LOCK.ACQUIRE k b 600000"), Reply::Nil);
    assert!(fence > held);
}

/// The old primary comes back at once and lacks nothing, so nobody waits for the longest lease.
fn a_coordinated_failover_ends_the_guard_early(kind: Kind) {
    for mode in ["failover", "quorum"] {
        let group = SentinelGroup::start(kind, &["guard", mode, "max-ttl", "3000"]);
        group.sentinels.fail_over("COORDINATED");
        let mut last = Instant::now();
        let new = group.sentinels.wait_for("a promotion", || {
            let now = Instant::now();
            let new = (1..3).find(|server| group.leads(*server));
            last = if new.is_none() { now } else { last };
            new
        });
        wait_for("the end of the guard", || {
            (group.info(new, "lock_guard")? == "open").then_some(())
        });
        assert!(last.elapsed() < Duration::from_secs(3), "{mode}");
        group.client(new).int("LOCK.ACQUIRE k me 2000");
    }
}
