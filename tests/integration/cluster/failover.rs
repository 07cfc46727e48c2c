//! A replica replaces its primary, with and without its consent, while somebody holds and waits. The
//! campaign does the same under load, where primaries die and stop, too.

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{Cluster, Kind, Later, SHARDS};

on_every_server![a_takeover_keeps_what_is_replicated_and_grants_larger_fences];
// A busy machine loses votes.
on_every_server_at_night![an_election_keeps_what_is_replicated_and_grants_larger_fences];

const TAKEOVER: &str = "CLUSTER FAILOVER TAKEOVER";

fn acquire(key: &str, token: &str) -> String {
    format!("LOCK.ACQUIRE {key} {token} 60000")
}

fn waits(cluster: &Cluster, node: usize, key: &str, token: &str) -> Later {
    cluster.blocked(node, &format!("{} BLOCK 0", acquire(key, token)))
}

/// In a cluster, Valkey 9 leaves this to the module, which learns of it a moment later.
fn is_unblocked(kind: Kind, waiter: Later) {
    waiter.error(match kind {
        Kind::Valkey9 => "TRYAGAIN ",
        _ => "UNBLOCKED ",
    });
}

fn a_takeover_keeps_what_is_replicated_and_grants_larger_fences(kind: Kind) {
    fail_over_by(kind, TAKEOVER, TAKEOVER);
}

fn an_election_keeps_what_is_replicated_and_grants_larger_fences(kind: Kind) {
    fail_over_by(kind, "CLUSTER FAILOVER", "CLUSTER FAILOVER FORCE");
}

fn fail_over_by(kind: Kind, planned: &str, forced: &str) {
    let cluster = Cluster::start(kind);
    let shard = cluster.shard_of(cluster.slot("ahead"));
    // From now on the clock does not help: a new primary must know the fences of the old one.
    raise_fences_by_an_hour(&mut cluster.client(shard));
    let (old, new) = (shard, shard + SHARDS);
    hand_over(&cluster, old, new, planned);
    hand_over(&cluster, new, old, planned);
    let shard = (shard + 1) % SHARDS;
    promote(&cluster, shard, || {
        cluster.fail_over(shard + SHARDS, forced)
    });
}

fn hand_over(cluster: &Cluster, old: usize, new: usize, line: &str) {
    let key = &cluster.keys_of(old % SHARDS, 1)[0];
    let (mut before, mut after) = (cluster.client(old), cluster.client(new));
    let fence = before.int(&acquire(key, "a"));
    let waiters = ["b", "c"].map(|token| waits(cluster, old, key, token));
    cluster.nodes[new].wait_until_it_follows(&cluster.nodes[old]);
    cluster.fail_over(new, line);
    for waiter in waiters {
        is_unblocked(cluster.nodes[old].kind, waiter);
    }
    // The hold is the same, and the next client that asks here gets the lock after it.
    assert_eq!(after.int(&acquire(key, "a")), fence);
    let b = waits(cluster, new, key, "b");
    assert_eq!(after.int(&format!("LOCK.RELEASE {key} a")), 1);
    assert!(b.fence() > fence);
    assert_eq!(after.int(&format!("LOCK.RELEASE {key} b")), 1);
    before.refused(&format!("{} BLOCK 0", acquire(key, "c")), "MOVED ");
    cluster.nodes[old].wait_until_link_is_up();
}

/// Promotes the replica of a shard by `act`, under a hold that was replicated long before.
fn promote(cluster: &Cluster, shard: usize, act: impl FnOnce()) {
    let held = &cluster.keys_of(shard, 1)[0];
    let mut c = cluster.client(shard);
    let fence = c.int(&acquire(held, "a"));
    let waiter = waits(cluster, shard, held, "b");
    let replica = &cluster.nodes[shard + SHARDS];
    replica.wait_until_it_follows(&cluster.nodes[shard]);
    act();
    is_unblocked(cluster.nodes[shard].kind, waiter);
    c.refused(&format!("LOCK.RELEASE {held} a"), "MOVED ");
    let mut c = replica.client();
    assert_eq!(c.int(&format!("LOCK.RELEASE {held} a")), 1);
    assert!(c.int(&acquire(held, "b")) > fence);
}
