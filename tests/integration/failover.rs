//! A change of the primary with holders and waiters in flight: who waits on the old one is
//! unblocked to ask again and granted nothing there, and the new one goes on with larger fences. The
//! campaign does the same under load.

use crate::harness::{Kind, Reply, Server, AT_ONCE};

mod fences;
mod sentinel;
mod writes;

on_every_server![
    waiters_of_a_promotion_by_hand_ask_the_new_primary,
    waiters_of_a_failover_ask_the_new_primary,
];

/// A primary and its replica, either of which can become the primary.
fn pair(kind: Kind) -> (Server, Server) {
    let (primary, replica) = Server::pair(kind, &AT_ONCE);
    primary.wait_for_its_replica();
    (primary, replica)
}

/// The old primary becomes the replica of the new one a moment later.
fn waiters_of_a_promotion_by_hand_ask_the_new_primary(kind: Kind) {
    let (old, new) = pair(kind);
    change_primary(&old, &new, || {
        new.stand_alone();
        // Waiters at the old primary learn of the promotion only by this.
        old.follow(&new);
    });
}

/// FAILOVER there and back.
fn waiters_of_a_failover_ask_the_new_primary(kind: Kind) {
    let (one, other) = pair(kind);
    for (from, to) in [(&one, &other), (&other, &one)] {
        from.wait_for_its_replica();
        change_primary(from, to, || {
            let line = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", to.port);
            from.client().text(&line);
            to.client().until_info("role", "master");
        });
        assert_eq!(to.client().int("DEL k"), 1);
    }
}

/// Somebody holds a lock that is replicated, and two wait for it.
fn change_primary(old: &Server, new: &Server, act: impl FnOnce()) {
    let mut c = old.client();
    let fence = c.int("LOCK.ACQUIRE k a 600000");
    let waiters =
        ["b", "c"].map(|token| old.blocked(&format!("LOCK.ACQUIRE k {token} 600000 BLOCK 0")));
    new.wait_until_it_follows(old);
    act();
    // Valkey 9 may leave them to the module, which says TRYAGAIN.
    waiters.into_iter().for_each(|waiter| waiter.sent_away());
    assert_eq!(old.blocked_clients(), 0);
    let mut c = new.client();
    assert_eq!(c.int("LOCK.ACQUIRE k a 600000"), fence);
    assert_eq!(c.call("LOCK.ACQUIRE k b 600000"), Reply::Nil);
    let b = new.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert!(b.fence() > fence);
    old.client().refused("LOCK.ACQUIRE k z 600000", "READONLY ");
    old.assert_same_as(new, "after the failover");
}
