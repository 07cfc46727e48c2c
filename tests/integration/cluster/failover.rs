//! A replica replaces its primary, with and without its consent, while somebody holds and waits. The
//! campaign does the same under load.

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{wait_for, Cluster, Kind, Later, SHARDS};

on_every_server![a_failover_keeps_what_is_replicated_and_grants_larger_fences];

// Nodes elect a primary.
on_every_server_at_night![a_failed_primary_is_replaced_by_one_that_has_its_holds];

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

/// Each shard gets a different kind of failover.
fn a_failover_keeps_what_is_replicated_and_grants_larger_fences(kind: Kind) {
    let cluster = Cluster::start(kind);
    let shard = cluster.shard_of(cluster.slot("ahead"));
    // From now on the clock does not help: a new primary must know the fences of the old one.
    raise_fences_by_an_hour(&mut cluster.client(shard));
    let (old, new) = (shard, shard + SHARDS);
    hand_over(&cluster, old, new);
    hand_over(&cluster, new, old);
    by_takeover(&cluster, (shard + 1) % SHARDS);
    let forced = (shard + 2) % SHARDS;
    promote(&cluster, forced, || {
        cluster.fail_over(forced + SHARDS, "CLUSTER FAILOVER FORCE");
    });
}

fn hand_over(cluster: &Cluster, old: usize, new: usize) {
    let key = &cluster.keys_of(old % SHARDS, 1)[0];
    let (mut before, mut after) = (cluster.client(old), cluster.client(new));
    let fence = before.int(&acquire(key, "a"));
    let waiters = ["b", "c"].map(|token| waits(cluster, old, key, token));
    cluster.fail_over(new, "CLUSTER FAILOVER");
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

/// A replica that missed the last grant takes over. No asynchronous replication can prevent this.
fn by_takeover(cluster: &Cluster, shard: usize) {
    let key = &cluster.keys_of(shard, 2)[1];
    let replica = &cluster.nodes[shard + SHARDS];
    promote(cluster, shard, || {
        let mut c = cluster.client(shard);
        let mut takes_over = replica.raw();
        replica.signal("STOP");
        takes_over.send("CLUSTER FAILOVER TAKEOVER");
        // This is more than it can read at once, so that the grant is still in flight when it takes
        // over. Valkey 9 reads as long as there is data, so it gets more than the connection holds.
        let much = match replica.kind {
            Kind::Valkey9 => vec![b'x'; 32 << 20],
            _ => vec![b'x'; 500_000],
        };
        let same_slot = format!("{{{key}}}");
        c.send(&[b"SET".as_slice(), same_slot.as_bytes(), &much]);
        let fence = c.int(&acquire(key, "a"));
        replica.signal("CONT");
        assert_eq!(takes_over.line().as_deref(), Some("+OK"));
        replica.client().until_info("role", "master");
        cluster.wait_until_all_agree();
        // Two clients now believe they hold it. The fence shows which one is later.
        assert!(cluster.client(shard + SHARDS).int(&acquire(key, "b")) > fence);
    });
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

fn a_failed_primary_is_replaced_by_one_that_has_its_holds(kind: Kind) {
    let mut cluster = Cluster::start(kind);
    by_kill(&mut cluster);
    // When a stopped primary goes on, it does not know of its demotion.
    promote(&cluster, 1, || {
        let primary = &cluster.nodes[1];
        cluster.believe_failures_after_ms(1_000);
        primary.signal("STOP");
        cluster.client(1 + SHARDS).until_info("role", "master");
        primary.signal("CONT");
        cluster.wait_until_all_agree();
        cluster.believe_failures_after_ms(Cluster::PATIENT_MS);
    });
}

fn by_kill(cluster: &mut Cluster) {
    let held = &cluster.keys_of(0, 1)[0];
    let fence = cluster.client(0).int(&acquire(held, "a"));
    let waiter = waits(cluster, 0, held, "b");
    cluster.nodes[SHARDS].wait_until_it_follows(&cluster.nodes[0]);
    cluster.nodes[0].kill();
    waiter.broken();
    cluster.believe_failures_after_ms(1_000);
    cluster.client(SHARDS).until_info("role", "master");
    cluster.wait_until_all_agree();
    cluster.believe_failures_after_ms(Cluster::PATIENT_MS);
    assert_eq!(cluster.client(SHARDS).int(&acquire(held, "a")), fence);
    // It returns as a replica of its successor.
    cluster.nodes[0].start_again();
    cluster.client(0).until_info("role", "slave");
    cluster.nodes[0].wait_until_link_is_up();
    wait_for("it to know the slots", || {
        let reply = cluster.client(0).call(&format!("LOCK.RELEASE {held} a"));
        format!("{reply:?}").contains("MOVED ").then_some(())
    });
}
