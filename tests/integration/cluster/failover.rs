//! A replica replaces its primary, with and without its consent, while load clients hold its locks
//! and wait for them.

use std::thread;
use std::time::Duration;

use super::checker::{check, Checked, Promotion};
use super::journal::{Account, Hold};
use super::load_clients::{with_load_clients, Journal};
use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{figure, now_us, scale, wait_for, Client, Cluster, Kind, Later, SHARDS};

on_every_server![
    a_failover_loses_only_what_was_not_replicated,
    a_failed_primary_loses_only_what_was_not_replicated,
];

/// How long the load clients work before and after each failure.
const WORK: Duration = Duration::from_millis(200);

fn work() {
    thread::sleep(WORK);
}

/// Fails the test if the load clients did too little to prove anything.
#[track_caller]
fn assert_rich(checked: &Checked, journal: &Journal) {
    let errors = &journal.errors;
    assert!(checked.holds > 20, "{checked:?} {errors:?}");
}

#[track_caller]
fn check_all(journal: &Journal, promotion: Option<&Promotion<'_>>) -> Checked {
    let checked = check(&journal.holds, promotion).unwrap_or_else(|breaches| {
        let (count, errors) = (breaches.len(), &journal.errors);
        panic!("{count} breaches, {errors:?}; the first:\n{}", breaches[0])
    });
    assert_rich(&checked, journal);
    checked
}

/// Waits until a node is the primary for all nodes, and the other one follows it.
#[track_caller]
fn wait_until_promoted(cluster: &Cluster, new: usize) {
    cluster.client(new).until_info("role", "master");
    cluster.wait_until_all_agree();
}

/// In a cluster, Valkey 9 leaves this to the module, which learns of it a moment later.
fn is_unblocked(kind: Kind, waiter: Later) {
    waiter.error(match kind {
        Kind::Valkey9 => "TRYAGAIN ",
        _ => "UNBLOCKED ",
    });
}

/// Each shard gets a different kind of failover.
fn a_failover_loses_only_what_was_not_replicated(kind: Kind) {
    let [mut consent, mut takeover, mut force] = [Checked::default(); 3];
    for _ in 0..scale() {
        let mut cluster = Cluster::start(kind);
        let slot = cluster.slot("ahead");
        let of_ahead = |shard: &usize| cluster.slots_of(*shard).contains(&slot);
        let shard = (0..SHARDS).find(of_ahead).expect("a shard for every slot");
        consent += by_consent(&mut cluster, shard);
        takeover += by_takeover(&mut cluster, (shard + 1) % SHARDS);
        force += by_force(&mut cluster, (shard + 2) % SHARDS);
    }
    say(kind, "CLUSTER FAILOVER, there and back", &consent);
    say(kind, "CLUSTER FAILOVER TAKEOVER", &takeover);
    say(kind, "CLUSTER FAILOVER FORCE", &force);
}

/// There and back: nothing may be lost.
fn by_consent(cluster: &mut Cluster, shard: usize) -> Checked {
    // From now on the clock does not help: a new primary must know the fences of the old one.
    raise_fences_by_an_hour(&mut cluster.client(shard));
    let keys = cluster.keys_of(shard, 4);
    let (held, keys) = keys.split_first().unwrap();
    let (old, new) = (shard, shard + SHARDS);
    let (journal, ()) = with_load_clients(cluster, keys, |cluster| {
        work();
        hand_over(cluster, held, old, new);
        work();
        hand_over(cluster, held, new, old);
        work();
    });
    check_all(&journal, None)
}

fn hand_over(cluster: &Cluster, key: &str, old: usize, new: usize) {
    let acquire = |token: &str| format!("LOCK.ACQUIRE {key} {token} 60000");
    let wait = |node, token| cluster.blocked(node, &format!("{} BLOCK 0", acquire(token)));
    let (mut before, mut after) = (cluster.client(old), cluster.client(new));
    let fence = before.int(&acquire("a"));
    let waiters = ["b", "c"].map(|token| wait(old, token));
    cluster.fail_over(new, "CLUSTER FAILOVER");
    for waiter in waiters {
        is_unblocked(cluster.nodes[old].kind, waiter);
    }
    // The hold is the same, and the next client that asks here gets the lock after it.
    assert_eq!(after.int(&acquire("a")), fence);
    let b = wait(new, "b");
    assert_eq!(after.int(&format!("LOCK.RELEASE {key} a")), 1);
    assert!(b.fence() > fence);
    assert_eq!(after.int(&format!("LOCK.RELEASE {key} b")), 1);
    before.refused(&format!("{} BLOCK 0", acquire("c")), "MOVED ");
    cluster.nodes[old].wait_until_link_is_up();
}

/// A replica that missed the last grants takes over. No asynchronous replication can prevent this
/// case.
fn by_takeover(cluster: &mut Cluster, shard: usize) -> Checked {
    let checked = promote(cluster, shard, |cluster, key| {
        let replica = &cluster.nodes[shard + SHARDS];
        let mut c = cluster.client(shard);
        let mut takes_over = replica.raw();
        replica.signal("STOP");
        takes_over.send("CLUSTER FAILOVER TAKEOVER");
        // This is more than it can read at once, so that later effects are still in flight when it
        // takes over. Valkey 9 reads as long as there is data, so it gets more than the connection
        // holds.
        let much = match cluster.nodes[shard].kind {
            Kind::Valkey9 => vec![b'x'; 32 << 20],
            _ => vec![b'x'; 500_000],
        };
        let same_slot = format!("{{{key}}}");
        c.send(&[b"SET".as_slice(), same_slot.as_bytes(), &much]);
        let a = take(&mut c, key, "a");
        let mut offset = || c.info("master_repl_offset").parse::<u64>().unwrap();
        let before = offset();
        wait_for("the crowd to go on", || {
            (offset() > before + 2_000).then_some(())
        });
        replica.signal("CONT");
        assert_eq!(takes_over.line().as_deref(), Some("+OK"));
        wait_until_promoted(cluster, shard + SHARDS);
        // Two clients now believe they hold it. The fence shows which one is later.
        let b = take(&mut cluster.client(shard + SHARDS), key, "b");
        assert!(b.fence > a.fence);
        vec![a, b]
    });
    assert!(checked.unreplicated > 1, "{checked:?}");
    assert!(checked.excused > 0, "{checked:?}");
    checked
}

/// A hold that its client keeps.
fn take(c: &mut Client, key: &str, token: &str) -> Hold {
    let asked_us = now_us();
    let fence = c.int(&format!("LOCK.ACQUIRE {key} {token} 60000"));
    let instants = [asked_us, now_us(), asked_us + 60_000_000];
    Hold::exclusive(key, token, fence.try_into().unwrap(), instants)
}

fn by_force(cluster: &mut Cluster, shard: usize) -> Checked {
    promote(cluster, shard, |cluster, _| {
        cluster.fail_over(shard + SHARDS, "CLUSTER FAILOVER FORCE");
        Vec::new()
    })
}

/// Promotes the replica of a shard by `act`, which gets a key of its own and returns its holder.
/// Checks what the load clients saw.
fn promote(
    cluster: &mut Cluster,
    shard: usize,
    act: impl FnOnce(&Cluster, &str) -> Vec<Hold>,
) -> Checked {
    let keys = cluster.keys_of(shard, 5);
    let [held, own, keys @ ..] = &keys[..] else {
        panic!("five keys");
    };
    let promoted = shard + SHARDS;
    let (mut journal, (struck_us, holds)) = with_load_clients(cluster, keys, |cluster| {
        let mut c = cluster.client(shard);
        c.int(&format!("LOCK.ACQUIRE {held} a 60000"));
        let waiter = cluster.blocked(shard, &format!("LOCK.ACQUIRE {held} b 60000 BLOCK 0"));
        work();
        let struck_us = now_us();
        let holds = act(cluster, own);
        is_unblocked(cluster.nodes[shard].kind, waiter);
        c.refused(&format!("LOCK.RELEASE {held} a"), "MOVED ");
        // It was replicated long before.
        let mut c = cluster.client(promoted);
        assert_eq!(c.int(&format!("LOCK.RELEASE {held} a")), 1);
        work();
        (struck_us, holds)
    });
    journal.holds.extend(holds);
    let account = &Account::of(&cluster.nodes[promoted]);
    check_all(&journal, Some(&Promotion { account, struck_us }))
}

fn say(kind: Kind, what: &str, checked: &Checked) {
    let Checked {
        holds,
        pairs,
        both,
        unreplicated,
        excused,
    } = checked;
    let times = scale();
    figure(
        kind,
        &format!(
            "{times} × {what}: {holds} holds, {pairs} pairs of them compared, {both} grants of two keys whole; {unreplicated} were unknown to the new primary, \
             {excused} pairs were held at once, each with one of these"
        ),
    );
}

fn a_failed_primary_loses_only_what_was_not_replicated(kind: Kind) {
    let [mut killed, mut stopped] = [Checked::default(); 2];
    for _ in 0..scale() {
        let mut cluster = Cluster::start(kind);
        killed += by_kill(&mut cluster);
        stopped += by_stop(&mut cluster, 1);
    }
    say(kind, "kill -9 of a primary", &killed);
    say(kind, "SIGSTOP of a primary until it was replaced", &stopped);
}

/// A primary is stopped during the election. When it resumes, it executes pending commands before
/// it learns of its demotion.
fn by_stop(cluster: &mut Cluster, shard: usize) -> Checked {
    promote(cluster, shard, |cluster, _| {
        let primary = &cluster.nodes[shard];
        cluster.believe_failures_after_ms(1_000);
        primary.signal("STOP");
        cluster.client(shard + SHARDS).until_info("role", "master");
        work();
        primary.signal("CONT");
        cluster.wait_until_all_agree();
        cluster.believe_failures_after_ms(Cluster::PATIENT_MS);
        Vec::new()
    })
}

fn by_kill(cluster: &mut Cluster) -> Checked {
    let keys = cluster.keys_of(0, 4);
    let (held, keys) = keys.split_first().unwrap();
    let (journal, struck_us) = with_load_clients(cluster, keys, |cluster| {
        let fence = cluster
            .client(0)
            .int(&format!("LOCK.ACQUIRE {held} a 60000"));
        let waiter = cluster.blocked(0, &format!("LOCK.ACQUIRE {held} b 60000 BLOCK 0"));
        work();
        let struck_us = now_us();
        cluster.nodes[0].kill();
        waiter.broken();
        cluster.believe_failures_after_ms(1_000);
        wait_until_promoted(cluster, SHARDS);
        cluster.believe_failures_after_ms(Cluster::PATIENT_MS);
        let mut c = cluster.client(SHARDS);
        assert_eq!(c.int(&format!("LOCK.ACQUIRE {held} a 60000")), fence);
        work();
        // It returns as a replica of its successor.
        cluster.nodes[0].start_again();
        cluster.client(0).until_info("role", "slave");
        cluster.nodes[0].wait_until_link_is_up();
        cluster
            .client(0)
            .refused(&format!("LOCK.RELEASE {held} a"), "MOVED ");
        work();
        struck_us
    });
    let account = &Account::of(&cluster.nodes[SHARDS]);
    check_all(&journal, Some(&Promotion { account, struck_us }))
}
