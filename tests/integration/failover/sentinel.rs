//! Three sentinels and a primary that is stopped and goes on. The campaign kills it under load.

use super::pair;
use crate::harness::{Kind, Reply, Sentinels};

on_every_server_at_night![sentinels_replace_a_primary_that_is_stopped];

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
