//! The guard in a cluster: failovers of a shard, and slots that come to a node.

use std::time::{Duration, Instant};

use super::assert_logged;
use super::servers::stand_still;
use crate::harness::{wait_for, Cluster, Kind, Reply, SHARDS};

on_every_server![
    a_slot_is_not_empty_with_a_lock_in_another_database;
    from 7.0: // CONFIG for modules
        failovers_of_a_shard,
        a_primary_that_was_replaced_while_it_stood_still_decides_nothing,
        slots_that_come,
        a_move_that_is_given_up,
];

const LEASE: Duration = Duration::from_secs(8);

fn failovers_of_a_shard(kind: Kind) {
    let mut cluster = Cluster::start(kind);
    for node in &cluster.nodes {
        let line = "CONFIG SET lock.guard failover lock.max-ttl 8000 lock.guard-slack 1000";
        node.client().text(line);
    }
    let (old, new) = (0, SHARDS);
    let keys = cluster.keys_of(0, 2);
    let take = |token: &str| format!("LOCK.ACQUIRE {} {token} 8000 BLOCK 0", keys[1]);
    let mut c = cluster.client(old);
    c.until_info("lock_guard", "open");
    let held = &keys[0];
    c.int(&format!("LOCK.ACQUIRE {held} owner 8000"));
    cluster.nodes[new].wait_until_it_follows(&cluster.nodes[old]);
    let begun = Instant::now();
    cluster.client(new).text("CLUSTER FAILOVER");
    cluster.client(new).until_info("role", "master");
    let mut c = cluster.client(new);
    assert_eq!(c.int(&format!("LOCK.RENEW {held} owner 8000")), 1);
    c.until_info("lock_guard", "open");
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    cluster.nodes[old].wait_until_it_follows(&cluster.nodes[new]);
    let sent = Instant::now();
    c.int(&take("first"));
    cluster.nodes[new].kill();
    cluster.client(old).text("CLUSTER FAILOVER TAKEOVER");
    cluster.client(old).until_info("role", "master");
    let mut c = cluster.client(old);
    c.int(&take("second"));
    assert!(sent.elapsed() > LEASE, "{:?}", sent.elapsed());
}

fn a_primary_that_was_replaced_while_it_stood_still_decides_nothing(kind: Kind) {
    let cluster = Cluster::start(kind);
    for node in &cluster.nodes {
        let line = "CONFIG SET lock.guard failover lock.max-ttl 4000 lock.guard-slack 1000";
        node.client().text(line);
    }
    let (old, new) = (0, SHARDS);
    let keys = cluster.keys_of(0, 2);
    let (held, free) = (&keys[0], &keys[1]);
    let mut c = cluster.client(old);
    c.until_info("lock_guard", "open");
    cluster.nodes[new].wait_until_it_follows(&cluster.nodes[old]);
    // Those that believe it dead close their links, so the news comes late.
    cluster.believe_failures_after_ms(1_500);
    let replies = stand_still(&cluster.nodes[old], |callers| {
        let mut c = cluster.client(new);
        c.until_info("role", "master");
        for (n, caller) in callers.iter_mut().enumerate() {
            caller.send(&match n % 3 {
                0 => format!("LOCK.ACQUIRE {free} old 4000"),
                1 => format!("RWLOCK.RLOCK {free} old 4000 BLOCK 0"),
                _ => format!("LOCK.MACQUIRE 1 {held} old 4000"),
            });
        }
        c.int(&format!("LOCK.ACQUIRE {free} new 4000 BLOCK 0"));
        c.int(&format!("LOCK.ACQUIRE {held} new 4000 BLOCK 0"));
    });
    let is_refused = |reply: &String| {
        let errors = ["-MOVED", "-TRYAGAIN", "-CLUSTERDOWN", "-UNBLOCKED"];
        reply == "$-1" || errors.iter().any(|error| reply.starts_with(error))
    };
    assert!(replies.iter().all(is_refused), "{replies:?}");
}

/// Has all nodes forget a slot, and gives it to another one then.
fn add(cluster: &Cluster, slot: i64, to: usize) {
    for node in &cluster.nodes {
        node.client().call(&format!("CLUSTER DELSLOTS {slot}"));
    }
    let mut c = cluster.client(to);
    c.text(&format!("CLUSTER ADDSLOTS {slot}"));
    c.text("CLUSTER BUMPEPOCH");
    cluster.wait_until_all_agree();
}

/// Gives a slot to a node, and leaves its keys where they are.
fn seize(cluster: &Cluster, slot: i64, to: usize) {
    let mut c = cluster.client(to);
    c.text(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(to)));
    c.text("CLUSTER BUMPEPOCH");
    cluster.wait_until_all_agree();
}

fn slots_that_come(kind: Kind) {
    let cluster = Cluster::start(kind);
    let (mut from, mut to) = (cluster.client(0), cluster.client(1));
    let keys = cluster.keys_of(0, 7);
    let slot = |n: usize| cluster.slot(&keys[n]);
    let take = |n: usize, token: &str| format!("LOCK.ACQUIRE {} {token} 8000 BLOCK 0", keys[n]);
    let set = |line: &str| {
        for node in &cluster.nodes {
            node.client().text(line);
        }
    };
    // The control.
    let sent = Instant::now();
    from.int(&take(0, "first"));
    seize(&cluster, slot(0), 1);
    to.int(&take(0, "second"));
    assert!(sent.elapsed() < LEASE);

    set("CONFIG SET lock.guard failover lock.max-ttl 8000 lock.guard-slack 1000");
    from.until_info("lock_guard", "open");
    to.until_info("lock_guard", "open");
    // With its keys, and so fast that nobody sees it.
    from.int(&take(1, "owner"));
    cluster.begin_to_move(slot(1), 0, 1);
    assert_eq!(cluster.move_keys(slot(1), 0, 1), 1);
    cluster.end_of_move(slot(1), 0, 1);
    let begun = Instant::now();
    assert_eq!(to.int(&format!("LOCK.RENEW {} owner 8000", keys[1])), 1);
    to.int(&format!("LOCK.ACQUIRE {{{}}}2 other 8000 BLOCK 0", keys[1]));
    cluster.begin_to_move(slot(2), 0, 1);
    cluster.end_of_move(slot(2), 0, 1);
    to.int(&take(2, "owner"));
    if kind == Kind::Valkey9 {
        from.int(&take(5, "owner"));
        cluster.begin_to_migrate([slot(5), slot(5)], 0, 1);
        cluster.end_of_migration(0, 1);
        assert_eq!(to.int(&format!("LOCK.RELEASE {} owner", keys[5])), 1);
        to.int(&take(5, "next"));
    }
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    // Added anew, while the cluster is not whole.
    let begun = Instant::now();
    from.int(&take(6, "first"));
    add(&cluster, slot(6), 1);
    let early = to.call(&format!("LOCK.ACQUIRE {} early 8000", keys[6]));
    // The nodes may take long to agree.
    assert!(early == Reply::Nil || begun.elapsed() > LEASE, "{early:?}");
    let added = cluster.blocked(1, &take(6, "second"));
    // Without them.
    let sent = Instant::now();
    from.int(&take(3, "first"));
    seize(&cluster, slot(3), 1);
    let early = to.call(&format!("LOCK.ACQUIRE {} early 8000", keys[3]));
    assert!(early == Reply::Nil || sent.elapsed() > LEASE, "{early:?}");
    assert!(to.info("lock_guard") == "slot" || sent.elapsed() > LEASE);
    // A process that starts meanwhile waits as after a promotion.
    let marker = cluster.nodes[1].dir().join("dump.rdb.guarded");
    let noted = std::fs::read_to_string(&marker).unwrap_or_default();
    assert!(noted == "promotion" || sent.elapsed() > LEASE, "{noted}");
    let seized = cluster.blocked(1, &take(3, "second"));
    // From a node that is guarded itself.
    from.text("CONFIG SET lock.guard off");
    from.text("CONFIG SET lock.guard failover");
    let guarded = Instant::now();
    cluster.begin_to_move(slot(4), 0, 1);
    cluster.end_of_move(slot(4), 0, 1);
    let is_early = added.is_answered() || seized.is_answered();
    assert!(!is_early || begun.elapsed() > LEASE);
    to.int(&take(4, "second"));
    assert!(guarded.elapsed() > LEASE, "{:?}", guarded.elapsed());
    seized.reply().as_int();
    assert!(sent.elapsed() > LEASE, "{:?}", sent.elapsed());
    added.reply().as_int();
    assert!(begun.elapsed() > LEASE, "{:?}", begun.elapsed());
    to.until_info("lock_guard", "open");
    assert!(!marker.exists());
    let ended = "guard: it has ended in all slots";
    assert_logged(&cluster.nodes[1], "slot", ended);
}

/// The target has granted a key that is not at the source.
fn a_move_that_is_given_up(kind: Kind) {
    let cluster = Cluster::start(kind);
    let (mut from, mut to) = (cluster.client(0), cluster.client(1));
    for c in [&mut from, &mut to] {
        c.text("CONFIG SET lock.guard failover lock.max-ttl 8000 lock.guard-slack 1000");
        c.until_info("lock_guard", "open");
    }
    let key = cluster.keys_of(0, 1).remove(0);
    let take = |token: &str| format!("LOCK.ACQUIRE {key} {token} 8000");
    cluster.begin_to_move(cluster.slot(&key), 0, 1);
    let sent = wait_for("a grant at the target", || {
        let sent = Instant::now();
        to.text("ASKING");
        matches!(to.call(&take("owner")), Reply::Int(_)).then_some(sent)
    });
    from.text(&format!("CLUSTER SETSLOT {} STABLE", cluster.slot(&key)));
    wait_for("the lease to end", || {
        let next = from.call(&take("next"));
        let is_granted = matches!(next, Reply::Int(_));
        assert!(!is_granted || sent.elapsed() > LEASE, "{next:?}");
        is_granted.then_some(())
    });
}

/// In a cluster of Valkey 9 with several databases, a node that asks is told of all of them.
fn a_slot_is_not_empty_with_a_lock_in_another_database(kind: Kind) {
    if kind != Kind::Valkey9 {
        return;
    }
    let cluster = Cluster::of(kind, 2, &["--cluster-databases", "4"]);
    let (mut from, mut to) = (cluster.client(0), cluster.client(1));
    for c in [&mut from, &mut to] {
        c.text("CONFIG SET lock.guard failover lock.max-ttl 8000 lock.guard-slack 1000");
        c.until_info("lock_guard", "open");
        c.text("SELECT 1");
    }
    let key = cluster.keys_of(0, 1).remove(0);
    let sent = Instant::now();
    from.int(&format!("LOCK.ACQUIRE {key} first 8000"));
    add(&cluster, cluster.slot(&key), 1);
    wait_for("the lease to end", || {
        let early = to.call(&format!("LOCK.ACQUIRE {key} early 8000"));
        let is_over = sent.elapsed() > LEASE;
        assert!(early == Reply::Nil || is_over, "{early:?}");
        is_over.then_some(())
    });
}
