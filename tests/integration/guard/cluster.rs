//! The guard in a cluster: slots that come to a node. The campaign has failovers of a shard.

use super::{assert_logged, ms_since, open};
use crate::harness::{Clock, Cluster, Kind, Reply};

on_every_server![slots_that_come];

/// Gives a slot to a node, which then claims it by a new epoch.
fn add(cluster: &Cluster, slot: i64, to: usize) {
    cluster.claim(slot, to);
    cluster.client(to).text("CLUSTER BUMPEPOCH");
    cluster.wait_until_all_agree();
}

/// Gives a slot to a node, and leaves its keys where they are.
fn seize(cluster: &Cluster, slot: i64, to: usize) {
    let mut c = cluster.client(to);
    c.text(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(to)));
    c.text("CLUSTER BUMPEPOCH");
    cluster.wait_until_all_agree();
}

const TTL_MS: u64 = 120_000;
const GUARDED: &str = "CONFIG SET lock.guard failover lock.max-ttl 120000 lock.guard-slack 30000";

/// Each way in which a slot comes, with its keys and without.
fn slots_that_come(kind: Kind) {
    let clock = Clock::ahead_by_us(0);
    let cluster = Cluster::start_by(kind, &clock);
    let (mut from, mut to) = (cluster.client(0), cluster.client(1));
    let keys = cluster.keys_of(0, 6);
    let slot = |n: usize| cluster.slot(&keys[n]);
    let take = |n: usize, token: &str| format!("LOCK.ACQUIRE {} {token} 120000 BLOCK 0", keys[n]);
    // The control.
    let sent_us = to.now_us();
    from.int(&take(0, "first"));
    seize(&cluster, slot(0), 1);
    to.int(&take(0, "second"));
    assert!(ms_since(sent_us, &mut to) < TTL_MS);

    for node in &cluster.nodes {
        node.client().text(GUARDED);
    }
    open(&clock, &mut from);
    open(&clock, &mut to);
    let begun_us = to.now_us();
    // With its keys, and so fast that nobody sees it.
    from.int(&take(1, "owner"));
    cluster.begin_to_move(slot(1), 0, 1);
    assert_eq!(cluster.move_keys(slot(1), 0, 1), 1);
    cluster.end_of_move(slot(1), 0, 1);
    assert_eq!(to.int(&format!("LOCK.RENEW {} owner 120000", keys[1])), 1);
    assert_eq!(to.int(&format!("LOCK.RELEASE {} owner", keys[1])), 1);
    // Empty.
    cluster.begin_to_move(slot(2), 0, 1);
    cluster.end_of_move(slot(2), 0, 1);
    // Without its keys.
    from.int(&take(3, "first"));
    seize(&cluster, slot(3), 1);
    assert_eq!(to.info("lock_guard"), "slot");
    // Added anew, while the cluster is not whole.
    from.int(&take(4, "first"));
    add(&cluster, slot(4), 1);
    let mut moved = 1..5;
    // Valkey 9 has failed such a move at times: docs/OPERATIONS.md.
    if kind == Kind::Redis8_6 {
        from.int(&take(5, "owner"));
        cluster.begin_to_migrate([slot(5), slot(5)], 0, 1);
        cluster.end_of_migration(0, 1);
        assert_eq!(to.int(&format!("LOCK.RENEW {} owner 120000", keys[5])), 1);
        assert_eq!(to.int(&format!("LOCK.RELEASE {} owner", keys[5])), 1);
        moved.end = 6;
    }
    cluster.wait_until_all_agree();
    for key in &keys[moved.clone()] {
        let early = to.call(&format!("LOCK.ACQUIRE {key} early 120000"));
        assert_eq!(early, Reply::Nil, "{key}");
    }
    let waits: Vec<_> = moved
        .map(|n| cluster.blocked(1, &take(n, "second")))
        .collect();
    for second in waits {
        clock.reply(second).as_int();
        let took_ms = ms_since(begun_us, &mut to);
        assert!(took_ms > TTL_MS, "{took_ms}");
    }
    open(&clock, &mut to);
    let ended = "guard: it has ended in all slots";
    assert_logged(&cluster.nodes[1], "slot", ended);
}
