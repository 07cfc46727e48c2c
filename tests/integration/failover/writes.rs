//! WAIT and min-replicas-to-write: how a user makes sure that a replica has a write.

use std::time::{Duration, Instant};

use super::pair;
use crate::harness::{figure, scale, wait_for, Kind, Later, Reply, Server};

on_every_server![
    a_hold_confirmed_by_wait_is_on_the_promoted_replica,
    a_primary_that_stops_twice_grants_nothing_without_its_replica,
    a_primary_resumed_after_its_replica_left_grants_nobody,
];

/// Acquire, WAIT, then kill the primary at once, with other clients waiting.
fn a_hold_confirmed_by_wait_is_on_the_promoted_replica(kind: Kind) {
    let rounds = 3 * scale();
    let mut known = 0;
    for round in 0..rounds {
        let (mut primary, replica) = pair(kind);
        let mut c = primary.client();
        let mut fences = Vec::new();
        for n in 0..50 {
            let fence = c.int(&format!("LOCK.ACQUIRE k{n} a{n} 600000"));
            let shared = c.int(&format!("RWLOCK.RLOCK s{} r{n} 600000", n % 3));
            fences.push((n, fence, shared));
        }
        c.int("LOCK.ACQUIRE contended a 600000");
        let b = primary.blocked("LOCK.ACQUIRE contended b 600000 BLOCK 0");
        let d = primary.blocked("LOCK.ACQUIRE contended d 600000 BLOCK 0");
        c.int("LOCK.RELEASE contended a");
        // A grant to a waiter is written by another client's command. A renewal makes the write the
        // client's own.
        let (granted, mut b) = b.reply_and_client();
        assert_eq!(b.int("LOCK.RENEW contended b 600000"), 1);
        assert_eq!(b.int("WAIT 1 10000"), 1);
        assert_eq!(c.int("WAIT 1 10000"), 1);
        primary.kill();
        d.broken();
        let mut r = replica.client();
        r.text("REPLICAOF NO ONE");
        let last = granted.as_int();
        for (n, fence, shared) in fences {
            assert_eq!(r.call(&format!("LOCK.ACQUIRE k{n} you 600000")), Reply::Nil);
            assert_eq!(r.int(&format!("LOCK.ACQUIRE k{n} a{n} 600000")), fence);
            let again = format!("RWLOCK.RLOCK s{} r{n} 600000", n % 3);
            assert_eq!(r.int(&again), shared);
            known += 2;
        }
        assert_eq!(r.int("LOCK.ACQUIRE contended b 600000"), last, "{round}");
        assert!(r.int("LOCK.ACQUIRE new me 600000") > last);
    }
    figure(kind, &format!("{known} holds acknowledged by WAIT, {rounds} primaries killed, every hold on the promoted replica"));
}

/// A primary that requires a replica, and has one.
fn careful(kind: Kind) -> (Server, Server) {
    let (primary, replica) = pair(kind);
    primary.client().text("CONFIG SET min-replicas-to-write 1");
    (primary, replica)
}

fn lacks_replicas(server: &Server) {
    let mut c = server.client();
    c.until_info("min_slaves_good_slaves", "0");
}

/// A lock whose owner is gone, and a waiter.
fn waiter_for_a_dead_owner(primary: &Server, ttl_ms: u64) -> (Later, Instant) {
    let mut c = primary.client();
    c.int("LOCK.ACQUIRE k dead 60000");
    let waiter = primary.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    // The last step, so that setup does not use up the ttl.
    assert_eq!(c.int(&format!("LOCK.RENEW k dead {ttl_ms}")), 1);
    (waiter, Instant::now() + Duration::from_millis(ttl_ms))
}

fn wait_until(instant: Instant) {
    wait_for("the time", || (Instant::now() > instant).then_some(()));
}

/// A resumed primary finds an expired lock, a waiter for it, and behind these in its input the news
/// that its replica has left.
fn a_primary_resumed_after_its_replica_left_grants_nobody(kind: Kind) {
    for _ in 0..scale() {
        let (old, new) = careful(kind);
        let (b, end) = waiter_for_a_dead_owner(&old, 1_500);
        assert_eq!(old.client().int("WAIT 1 10000"), 1);
        old.signal("STOP");
        assert!(Instant::now() < end && b.is_pending(), "too slow a machine");
        new.stand_alone();
        wait_until(end + Duration::from_millis(150));
        new.client().int("LOCK.ACQUIRE k d 600000");
        old.signal("CONT");
        lacks_replicas(&old);
        wait_until(Instant::now() + Duration::from_millis(50));
        assert!(b.is_pending());
        assert!(old.client().holders("k").is_empty());
        old.follow(&new);
        b.error("UNBLOCKED ");
        old.wait_until_it_follows(&new);
        assert_eq!(old.client().holders("k"), ["d"]);
    }
}

/// After a stop the timer listens for a moment, so that it hears that the replica has left. The
/// second stop falls into that moment.
fn a_primary_that_stops_twice_grants_nothing_without_its_replica(kind: Kind) {
    let (primary, mut replica) = careful(kind);
    let (b, end) = waiter_for_a_dead_owner(&primary, 600);
    primary.signal("STOP");
    wait_until(Instant::now() + Duration::from_millis(300));
    primary.signal("CONT");
    primary.signal("STOP");
    replica.kill();
    wait_until(end + Duration::from_millis(200));
    primary.signal("CONT");
    lacks_replicas(&primary);
    wait_until(Instant::now() + Duration::from_millis(100));
    assert!(b.is_pending());
}
