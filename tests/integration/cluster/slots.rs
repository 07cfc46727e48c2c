//! Slots move to other primaries, or are deleted, while load clients hold their locks and wait for
//! them.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::checker::{check, halves, Checked};
use super::journal::Account;
use super::load_clients::{with_load_clients, Journal};
use crate::harness::{figure, now_us, scale, wait_for, Cluster, Kind, Reply, SHARDS};

on_every_server![a_slot_that_moves_or_is_deleted_loses_nothing];

fn a_slot_that_moves_or_is_deleted_loses_nothing(kind: Kind) {
    // Otherwise a node that misses a slot serves nobody, and the server itself unblocks all
    // clients.
    let mut cluster = Cluster::start_with(kind, &["--cluster-require-full-coverage", "no"]);
    slots_move_under_load(kind, &mut cluster, 0);
    a_hold_moves_with_its_fence(&cluster);
    a_deleted_slot_keeps_its_locks(kind, &mut cluster, 1);
}

/// The move of a slot from one primary to another.
struct Move {
    slot: i64,
    from: usize,
    to: usize,
    begun_us: u64,
    /// The time when both nodes knew of the new owner.
    over_us: u64,
}

#[track_caller]
fn check_all(journal: &Journal) -> Checked {
    check(&journal.holds, None).unwrap_or_else(|breaches| {
        let (count, errors) = (breaches.len(), &journal.errors);
        panic!("{count} breaches, {errors:?}; the first:\n{}", breaches[0])
    })
}

fn slots_move_under_load(kind: Kind, cluster: &mut Cluster, first: usize) {
    let keys = cluster.keys_of(first, 3);
    let rounds = 4 * scale();
    let (journal, moves) = with_load_clients(cluster, &keys, |cluster| {
        let mut moves = Vec::new();
        for round in 0..rounds {
            let [from, to] = [round, round + 1].map(|n| (first + n) % SHARDS);
            for key in &keys {
                moves.push(move_slot(cluster, cluster.slot(key), from, to));
            }
        }
        thread::sleep(Duration::from_millis(200));
        moves
    });
    let Checked { holds, pairs, .. } = check_all(&journal);
    let errors = &journal.errors;
    assert!(holds > 10 * moves.len(), "{holds} {errors:?}");
    let keys_moved = moves.len();
    nobody_is_granted_on_a_node_without_the_slot(cluster, &keys, &moves, &journal);
    let both = assert_none_is_half(cluster);
    let [asked, moved, sent_away] =
        ["ASK", "MOVED", "TRYAGAIN"].map(|code| errors_of(cluster, code));
    // The library handled these errors.
    assert!(asked > 0 && moved > 0, "{asked} {moved}");
    figure(
        kind,
        &format!("{keys_moved} slots moved, {holds} holds of the clients, {pairs} pairs compared, none lost or held twice, \
             {both} grants of two keys whole; answered on the way: ASK \
             {asked} times, MOVED {moved}, TRYAGAIN {sent_away}"),
    );
}

/// Every node has each grant of two keys for both. Returns their number.
#[track_caller]
pub fn assert_none_is_half(cluster: &Cluster) -> usize {
    let accounts = cluster.nodes.iter().map(Account::of);
    let of_node = |account: Account| {
        let halves: Vec<_> = halves(&account).collect();
        assert!(halves.is_empty(), "{halves:?}");
        account.of_both.len()
    };
    let both = accounts.map(of_node).sum();
    assert!(both > 0, "no grant of two keys");
    both
}

/// The number of error replies of the nodes.
fn errors_of(cluster: &Cluster, code: &str) -> usize {
    let counts = cluster.nodes.iter().map(|node| {
        let stats = node.client().text("INFO errorstats");
        let count = format!("errorstat_{code}:count=");
        let mut lines = stats.lines();
        let found = lines.find_map(|line| line.strip_prefix(&count)?.parse::<usize>().ok());
        found.unwrap_or(0)
    });
    counts.sum()
}

fn move_slot(cluster: &Cluster, slot: i64, from: usize, to: usize) -> Move {
    let begun_us = now_us();
    cluster.begin_to_move(slot, from, to);
    // The load clients also meet the slot in the middle of its move.
    thread::sleep(Duration::from_millis(30));
    cluster.move_keys(slot, from, to);
    thread::sleep(Duration::from_millis(30));
    cluster.end_of_move(slot, from, to);
    let over_us = now_us();
    cluster.wait_until_all_agree();
    Move {
        slot,
        from,
        to,
        begun_us,
        over_us,
    }
}

/// A fence is the instant of its grant, so the append-only files of the nodes show who granted what
/// and when.
#[track_caller]
fn nobody_is_granted_on_a_node_without_the_slot(
    cluster: &Cluster,
    keys: &[String],
    moves: &[Move],
    journal: &Journal,
) {
    let mut granted: BTreeMap<&str, BTreeMap<u64, usize>> = BTreeMap::new();
    let accounts: Vec<_> = (0..SHARDS)
        .map(|n| Account::of(&cluster.nodes[n]))
        .collect();
    for (node, account) in accounts.iter().enumerate() {
        for (key, fence) in &account.grants {
            let before = granted.entry(key).or_default().insert(*fence, node);
            assert_eq!(before, None, "{key} {fence} was granted by two nodes");
        }
    }
    for hold in &journal.holds {
        assert!(granted[&hold.key[..]].contains_key(&hold.fence), "{hold:?}");
    }
    for key in keys {
        let slot = cluster.slot(key);
        let of_slot: Vec<_> = moves.iter().filter(|m| m.slot == slot).collect();
        let granted = &granted[&key[..]];
        for (fence, node) in granted {
            // The last move that had begun.
            let Some(last) = of_slot.iter().rev().find(|m| m.begun_us <= *fence) else {
                assert_eq!(*node, of_slot[0].from, "{key} {fence}");
                continue;
            };
            let may = [
                last.to,
                if *fence < last.over_us {
                    last.from
                } else {
                    last.to
                },
            ];
            assert!(may.contains(node), "{key} {fence} by node {node}");
        }
        // After the first grant of the new node, the old one grants nothing more.
        let nodes: Vec<_> = granted.values().collect();
        let changes = nodes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= of_slot.len(), "{key}: {changes} changes");
    }
}

fn a_hold_moves_with_its_fence(cluster: &Cluster) {
    let slot = cluster.slot("ahead");
    let shard = (0..SHARDS).find(|shard| cluster.slots_of(*shard).contains(&slot));
    let from = shard.expect("a shard for every slot");
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

fn a_deleted_slot_keeps_its_locks(kind: Kind, cluster: &mut Cluster, owner: usize) {
    let keys = cluster.keys_of(owner, 4);
    let (held, keys) = keys.split_first().unwrap();
    let slots: Vec<String> = keys
        .iter()
        .chain([held])
        .map(|key| cluster.slot(key).to_string())
        .collect();
    let slots = slots.join(" ");
    let (journal, ()) = with_load_clients(cluster, keys, |cluster| {
        let mut c = cluster.client(owner);
        let fence = c.int(&format!("LOCK.ACQUIRE {held} a 60000"));
        for _ in 0..scale() {
            let waiters = ["b", "c"].map(|token| {
                cluster.blocked(owner, &format!("LOCK.ACQUIRE {held} {token} 60000 BLOCK 0"))
            });
            thread::sleep(Duration::from_millis(200));
            c.ok(&format!("CLUSTER DELSLOTS {slots}"));
            // Long before the hold ends.
            waiters
                .into_iter()
                .for_each(|waiter| waiter.error("TRYAGAIN "));
            c.refused(
                &format!("LOCK.ACQUIRE {held} b 60000 BLOCK 0"),
                "CLUSTERDOWN ",
            );
            thread::sleep(Duration::from_millis(200));
            c.ok(&format!("CLUSTER ADDSLOTS {slots}"));
            cluster.wait_until_all_agree();
            // The holder is the same as before.
            c.until(&format!("LOCK.ACQUIRE {held} a 60000"), fence);
        }
        thread::sleep(Duration::from_millis(200));
    });
    let Checked { holds, pairs, .. } = check_all(&journal);
    assert!(holds > 20, "{holds} {:?}", journal.errors);
    let deleted = (keys.len() + 1) * scale();
    figure(
        kind,
        &format!("{deleted} slots deleted and added, {holds} holds of the clients, {pairs} pairs compared, none lost or held twice"),
    );
}
