//! Slots move to other primaries, or are deleted, while somebody holds their locks and waits for them.
//! The campaign moves them under load.

use crate::harness::{wait_for, Cluster, Kind, Reply, SHARDS};

on_every_server![a_slot_that_moves_or_is_deleted_loses_nothing];

fn a_slot_that_moves_or_is_deleted_loses_nothing(kind: Kind) {
    // Otherwise a node that misses a slot serves nobody, and the server itself unblocks all
    // clients.
    let cluster = Cluster::start_with(kind, &["--cluster-require-full-coverage", "no"]);
    a_hold_moves_with_its_fence(&cluster);
    a_deleted_slot_keeps_its_locks(&cluster, 1);
}

fn a_hold_moves_with_its_fence(cluster: &Cluster) {
    let slot = cluster.slot("ahead");
    let from = cluster.shard_of(slot);
    let to = (from + 1) % SHARDS;
    // The clock of this node is an hour ahead of the other's.
    let (mut old, mut new) = (cluster.client(from), cluster.client(to));
    crate::harness::dump::raise_fences_by_an_hour(&mut old);
    old.int("LOCK.ACQUIRE ahead a 60000");
    let [b, c, d] = [
        "LOCK.ACQUIRE ahead b 60000 BLOCK 0",
        "LOCK.ACQUIRE ahead c 60000 BLOCK 0",
        "RWLOCK.RLOCK ahead d 60000 BLOCK 15000",
    ]
    .map(|line| cluster.blocked(from, line));
    cluster.begin_to_move(slot, from, to);
    // The node serves the key while it is here.
    old.int("LOCK.RELEASE ahead a");
    let fence = b.fence();
    assert!(c.is_pending() && d.is_pending());
    assert_eq!(cluster.move_keys(slot, from, to), 1);
    c.error("TRYAGAIN ");
    d.error("TRYAGAIN ");
    old.refused("LOCK.INFO ahead", "ASK ");
    // The new node grants requests there, both before and after the end of the move.
    new.ok("ASKING");
    assert_eq!(new.int("LOCK.RENEW ahead b 60000"), 1);
    cluster.end_of_move(slot, from, to);
    old.refused("LOCK.RELEASE ahead b", "MOVED ");
    assert_eq!(new.int("LOCK.ACQUIRE ahead b 60000"), fence);
    let d = cluster.blocked(to, "LOCK.ACQUIRE ahead d 60000 BLOCK 0");
    assert_eq!(new.int("LOCK.RELEASE ahead b"), 1);
    assert!(d.fence() > fence);
    // The replica of the new primary has it as well.
    cluster.nodes[to + SHARDS].wait_until_it_follows(&cluster.nodes[to]);
    let mut replica = cluster.client(to + SHARDS);
    replica.ok("READONLY");
    wait_for("the replica to know of the slot", || {
        let holders = replica.call("LOCK.INFO ahead");
        (!matches!(holders, Reply::Error(_))).then_some(())
    });
    assert_eq!(replica.holders("ahead"), ["d"]);
    assert_eq!(new.int("LOCK.RELEASE ahead d"), 1);
}

fn a_deleted_slot_keeps_its_locks(cluster: &Cluster, owner: usize) {
    let held = &cluster.keys_of(owner, 1)[0];
    let slot = cluster.slot(held);
    let mut c = cluster.client(owner);
    let fence = c.int(&format!("LOCK.ACQUIRE {held} a 60000"));
    let waiters = ["b", "c"]
        .map(|token| cluster.blocked(owner, &format!("LOCK.ACQUIRE {held} {token} 60000 BLOCK 0")));
    c.ok(&format!("CLUSTER DELSLOTS {slot}"));
    // Long before the hold ends.
    waiters
        .into_iter()
        .for_each(|waiter| waiter.error("TRYAGAIN "));
    c.refused(
        &format!("LOCK.ACQUIRE {held} b 60000 BLOCK 0"),
        "CLUSTERDOWN ",
    );
    c.ok(&format!("CLUSTER ADDSLOTS {slot}"));
    cluster.wait_until_all_agree();
    // The holder is the same as before.
    c.until(&format!("LOCK.ACQUIRE {held} a 60000"), fence);
}
