//! A change of the primary with holders and waiters in flight: who waits on the old one is
//! unblocked to ask again and granted nothing there, and the new one goes on with larger fences.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::harness::{figure, for_ms, scale, Kind, Server, AT_ONCE};

mod clients;
mod fences;
mod sentinel;
mod writes;

use clients::Group;

on_every_server![
    a_manual_promotion_under_load_loses_nothing_replicated,
    a_failover_under_load_loses_nothing_replicated,
    an_aborted_failover_changes_nothing,
];

/// A primary and its replica, either of which can become the primary.
fn pair(kind: Kind) -> (Server, Server) {
    let (primary, replica) = Server::pair(kind, &AT_ONCE);
    primary.wait_for_its_replica();
    (primary, replica)
}

/// The operator promotes the replica and informs the clients. The old primary becomes its replica a
/// moment later.
fn a_manual_promotion_under_load_loses_nothing_replicated(kind: Kind) {
    let (old, new) = pair(kind);
    let group = Group::of(old.port, true);
    let (story, demoted) = group.live(|| {
        group.wait_for_grants(100 * scale());
        new.stand_alone();
        group.primary.store(new.port, Ordering::Relaxed);
        // Waiters at the old primary learn of the promotion only by this.
        old.follow(&new);
        let demoted = Instant::now();
        group.wait_for_grants(100 * scale());
        demoted
    });
    let (before, after) = story.assert_fences_grow(old.port, new.port);
    story.assert_nothing_granted(old.port, demoted);
    // Only effects that had not reached the new primary at its promotion are lost.
    story.assert_one_holder(|grant| grant.port == old.port && !grant.sure);
    assert!(
        story.sent_away.contains_key("UNBLOCKED"),
        "{:?}",
        story.sent_away
    );
    assert_eq!(old.blocked_clients(), 0);
    old.assert_same_as(&new, "after the failover");
    let sent_away = &story.sent_away;
    figure(kind, &format!("{before} grants before and {after} after a promotion by hand, clients sent away: {sent_away:?}"));
}

/// FAILOVER there and back: nothing is lost.
fn a_failover_under_load_loses_nothing_replicated(kind: Kind) {
    let (one, other) = pair(kind);
    let failovers = 2 * scale();
    let (mut from, mut to) = (&one, &other);
    let (mut grants, mut unblocked) = (0, 0);
    for _ in 0..failovers {
        from.wait_for_its_replica();
        let group = Group::of(from.port, false);
        let (story, demoted) = group.live(|| {
            group.wait_for_grants(100);
            from.client()
                .text(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", to.port));
            to.client().until_info("role", "master");
            assert_eq!(from.client().info("role"), "slave");
            let demoted = Instant::now();
            group.primary.store(to.port, Ordering::Relaxed);
            group.wait_for_grants(100);
            demoted
        });
        let (before, after) = story.assert_fences_grow(from.port, to.port);
        story.assert_nothing_granted(from.port, demoted);
        story.assert_one_holder(|_| false);
        // Valkey 9 may leave them to the module, which says TRYAGAIN.
        let away = ["UNBLOCKED", "TRYAGAIN"].map(|word| story.sent_away.get(word).copied());
        let away: usize = away.into_iter().flatten().sum();
        assert!(away > 0, "{:?}", story.sent_away);
        assert_eq!(from.blocked_clients(), 0);
        from.assert_same_as(to, "after the failover");
        grants += before + after;
        unblocked += away;
        (from, to) = (to, from);
    }
    figure(kind, &format!("{failovers} failovers under {grants} grants, {unblocked} waiters unblocked to ask again, never two holders"));
}

/// The replica is stopped and never catches up, so the primary stays one. Its waiters stay, too.
fn an_aborted_failover_changes_nothing(kind: Kind) {
    let (primary, replica) = pair(kind);
    let mut c = primary.client();
    replica.signal("STOP");
    let fence = c.int("LOCK.ACQUIRE k a 600000");
    c.int("LOCK.ACQUIRE short a 600000");
    let b = primary.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    let d = primary.blocked("LOCK.ACQUIRE short d 600000 BLOCK 0");
    let failover = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 3000", replica.port);
    // Sent together, so that the deadline follows the pause.
    c.in_one_go(&["LOCK.RENEW short a 200", &failover]);
    assert_eq!(c.info("master_failover_state"), "waiting-for-sync");
    // The deadline passes while writes are paused.
    for_ms(250, || ());
    assert!(b.is_pending() && d.is_pending());
    c.until_info("master_failover_state", "no-failover");
    replica.signal("CONT");
    assert!(d.fence() > fence);
    assert!(b.is_pending());
    c.int("LOCK.RELEASE k a");
    assert!(b.fence() > fence);
    replica.assert_same_as(&primary, "after the failover");
}
