//! The guard in a cluster: failovers of a shard, and slots that come to a node.

use std::time::{Duration, Instant};

use super::assert_logged;
use super::servers::stand_still;
use crate::harness::{wait_for, Cluster, Kind, Reply, SHARDS};

on_every_server![
    failovers_of_a_shard,
    a_primary_that_was_replaced_while_it_stood_still_decides_nothing,
    slots_that_come,
    a_move_that_lasts_and_is_given_up,
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

/// Each way in which a slot comes, with its keys and without.
fn slots_that_come(kind: Kind) {
    let cluster = Cluster::start(kind);
    let (mut from, mut to) = (cluster.client(0), cluster.client(1));
    let keys = cluster.keys_of(0, 6);
    let slot = |n: usize| cluster.slot(&keys[n]);
    let take = |n: usize, token: &str| format!("LOCK.ACQUIRE {} {token} 8000 BLOCK 0", keys[n]);
    // The control.
    let sent = Instant::now();
    from.int(&take(0, "first"));
    seize(&cluster, slot(0), 1);
    to.int(&take(0, "second"));
    assert!(sent.elapsed() < LEASE);

    for node in &cluster.nodes {
        let line = "CONFIG SET lock.guard failover lock.max-ttl 8000 lock.guard-slack 1000";
        node.client().text(line);
    }
    from.until_info("lock_guard", "open");
    to.until_info("lock_guard", "open");
    let begun = Instant::now();
    let mut waits = Vec::new();
    let mut wait = |n: usize| {
        let at = Instant::now();
        waits.push((n, at, cluster.blocked(1, &take(n, "second"))));
    };
    // With its keys, and so fast that nobody sees it.
    from.int(&take(1, "owner"));
    cluster.begin_to_move(slot(1), 0, 1);
    assert_eq!(cluster.move_keys(slot(1), 0, 1), 1);
    cluster.end_of_move(slot(1), 0, 1);
    assert_eq!(to.int(&format!("LOCK.RENEW {} owner 8000", keys[1])), 1);
    assert_eq!(to.int(&format!("LOCK.RELEASE {} owner", keys[1])), 1);
    wait(1);
    // Empty.
    cluster.begin_to_move(slot(2), 0, 1);
    cluster.end_of_move(slot(2), 0, 1);
    wait(2);
    // Without its keys.
    from.int(&take(3, "first"));
    seize(&cluster, slot(3), 1);
    let early = to.call(&format!("LOCK.ACQUIRE {} early 8000", keys[3]));
    assert!(early == Reply::Nil || begun.elapsed() > LEASE, "{early:?}");
    assert!(to.info("lock_guard") == "slot" || begun.elapsed() > LEASE);
    wait(3);
    // Added anew, while the cluster is not whole.
    from.int(&take(4, "first"));
    add(&cluster, slot(4), 1);
    wait(4);
    if matches!(kind, Kind::Redis8_6 | Kind::Valkey9) {
        from.int(&take(5, "owner"));
        cluster.begin_to_migrate([slot(5), slot(5)], 0, 1);
        cluster.end_of_migration(0, 1);
        assert_eq!(to.int(&format!("LOCK.RENEW {} owner 8000", keys[5])), 1);
        assert_eq!(to.int(&format!("LOCK.RELEASE {} owner", keys[5])), 1);
        wait(5);
    }
    for (n, at, second) in waits {
        second.reply().as_int();
        assert!(at.elapsed() > LEASE, "{n}: {:?}", at.elapsed());
    }
    to.until_info("lock_guard", "open");
    let ended = "guard: it has ended in all slots";
    assert_logged(&cluster.nodes[1], "slot", ended);
}

/// C of the tests below.
const SHORT: &str = "CONFIG SET lock.guard failover lock.max-ttl 2000 lock.guard-slack 500";
const AFTER_MOVE: Duration = Duration::from_millis(2_500);

/// No key is granted that is absent here, however long the move lasts; and for C after it was given
/// up.
fn a_move_that_lasts_and_is_given_up(kind: Kind) {
    let cluster = Cluster::start(kind);
    let (mut from, mut to) = (cluster.client(0), cluster.client(1));
    for c in [&mut from, &mut to] {
        c.text(SHORT);
        c.until_info("lock_guard", "open");
    }
    let key = cluster.keys_of(0, 1).remove(0);
    let take = |token: &str| format!("LOCK.ACQUIRE {key} {token} 2000");
    cluster.begin_to_move(cluster.slot(&key), 0, 1);
    let begun = Instant::now();
    wait_for("more than C", || {
        to.text("ASKING");
        assert_eq!(to.call(&take("owner")), Reply::Nil);
        (begun.elapsed() > AFTER_MOVE * 2).then_some(())
    });
    let given_up = Instant::now();
    from.text(&format!("CLUSTER SETSLOT {} STABLE", cluster.slot(&key)));
    wait_for("the source to grant", || {
        let is_granted = matches!(from.call(&take("next")), Reply::Int(_));
        assert!(!is_granted || given_up.elapsed() > AFTER_MOVE);
        is_granted.then_some(())
    });
}
