//! What else goes on while slots move as a whole: waits for results, and the guard's heartbeat.

use super::{Fixture, FROM, TO};
use crate::harness::{wait_for, Kind, SHARDS};

on_servers![
    [redis_8_6 Redis8_6, valkey_9 Valkey9]
    a_waiter_for_a_result_goes_on_at_the_target,
];

// Only there a heartbeat may fail the migration.
on_servers![[valkey_9 Valkey9] no_heartbeat_is_sent_during_a_migration];

fn a_waiter_for_a_result_goes_on_at_the_target(kind: Kind) {
    let fixture = Fixture::start(kind);
    let [lock, result] = &fixture.keys(["lock", "result"]);
    let once = |token: &str| format!("LOCK.ONCE {lock} {result} {token} 60000 BLOCK 0");
    let mut source = fixture.source();
    let fence = source.int(&once("maker"));
    let waits = fixture.cluster.nodes[FROM].later(&once("t"));
    wait_for("the waiter", || {
        (source.waiters(lock) == ["t"]).then_some(())
    });
    fixture.migrate();
    waits.error("TRYAGAIN ");
    let waits = fixture.cluster.nodes[TO].later(&once("t"));
    let mut target = fixture.target();
    wait_for("the waiter", || {
        (target.waiters(lock) == ["t"]).then_some(())
    });
    // The maker goes on there with its hold, and nobody makes the value again.
    target.ok(&format!("LOCK.EXEC {lock} maker SET {result} v PX 60000"));
    assert_eq!(waits.reply(), "v".into());
    assert_eq!(target.int(&format!("LOCK.RELEASE {lock} maker")), 1);
    assert_eq!(target.call(&once("u")), "v".into());
    target.int(&format!("DEL {result}"));
    assert!(target.int(&once("u")) > fence);
}

fn no_heartbeat_is_sent_during_a_migration(kind: Kind) {
    let fixture = Fixture::start(kind);
    for node in &fixture.cluster.nodes {
        node.client()
            .text("CONFIG SET lock.max-ttl 1000 lock.guard-slack 0 lock.guard failover");
    }
    let mut source = fixture.source();
    source.until_info("lock_guard", "open");
    let mut replica = fixture.cluster.client(FROM + SHARDS);
    let mut heard = || replica.calls_of("lock._guard");
    let before = heard();
    wait_for("a heartbeat", || (heard() > before).then_some(()));
    fixture.set_out();
    // One may be on its way.
    let [key] = &fixture.keys(["key"]);
    source.int(&format!("LOCK.ACQUIRE {key} a 1000"));
    source.int("WAIT 1 0");
    let before = heard();
    // More than a second by the server's clock is time for four of them.
    let b = format!("LOCK.ACQUIRE {key} b 1000 BLOCK 0");
    assert!(fixture.cluster.nodes[FROM].later(&b).fence() > 0);
    assert_eq!(heard(), before);
    fixture.arrive();
    wait_for("a heartbeat", || (heard() > before).then_some(()));
}
