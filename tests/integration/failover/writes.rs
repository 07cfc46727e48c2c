//! WAIT: how a user makes sure that a replica has a write.

use super::pair;
use crate::harness::{figure, scale, Kind, Reply};

on_every_server![a_hold_confirmed_by_wait_is_on_the_promoted_replica];

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
