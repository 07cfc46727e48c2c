//! The guard in a cluster: a planned failover ends it early, and a takeover does not.

use std::time::{Duration, Instant};

use super::wait_until_open;
use crate::harness::{wait_for, Cluster, Kind, SHARDS};

on_every_server![failovers_of_a_shard];

const LEASE: Duration = Duration::from_secs(4);

fn failovers_of_a_shard(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return; // There are no settings of modules while a server runs.
    }
    let mut cluster = Cluster::start(kind);
    for node in &cluster.nodes {
        let line = "CONFIG SET lock.guard failover lock.max-ttl 4000 lock.guard-slack 1000";
        node.client().text(line);
    }
    let (old, new) = (0, SHARDS);
    let keys = cluster.keys_of(0, 2);
    let take = |token: &str| format!("LOCK.ACQUIRE {} {token} 4000 BLOCK 0", keys[1]);
    let mut c = cluster.client(old);
    wait_until_open(&mut c);
    let held = &keys[0];
    c.int(&format!("LOCK.ACQUIRE {held} owner 4000"));
    cluster.nodes[new].wait_until_it_follows(&cluster.nodes[old]);
    let begun = Instant::now();
    cluster.client(new).text("CLUSTER FAILOVER");
    wait_for("the failover", || cluster.is_primary(new).then_some(()));
    let mut c = cluster.client(new);
    assert_eq!(c.int(&format!("LOCK.RENEW {held} owner 4000")), 1);
    wait_until_open(&mut c);
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    cluster.nodes[old].wait_until_it_follows(&cluster.nodes[new]);
    let sent = Instant::now();
    c.int(&take("first"));
    cluster.nodes[new].kill();
    cluster.client(old).text("CLUSTER FAILOVER TAKEOVER");
    wait_for("the takeover", || cluster.is_primary(old).then_some(()));
    let mut c = cluster.client(old);
    c.int(&take("second"));
    assert!(sent.elapsed() > LEASE, "{:?}", sent.elapsed());
}
