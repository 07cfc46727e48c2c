//! A primary's place is taken by its replica, with and without its consent, while a crowd holds its locks and waits for them.

use std::thread;
use std::time::{Duration, Instant};

use super::checker::{check, Checked, Promotion};
use super::journal::{Account, Hold};
use super::load_clients::{with_load_clients, Journal};
use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{
    figure, now_us, scale, wait_for, Client, Cluster, Kind, Later, Reply, SHARDS,
};

on_every_server![
    a_failover_loses_only_what_was_not_replicated,
    a_failed_primary_loses_only_what_was_not_replicated,
];

/// How long the crowd works before and after each blow.
const WORK: Duration = Duration::from_millis(200);

fn work() {
    thread::sleep(WORK);
}

/// Fails the test when the crowd was too idle to prove anything.
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

/// Waits until a node is the primary for all, and the other one follows it.
#[track_caller]
fn wait_until_promoted(cluster: &Cluster, new: usize) {
    wait_for("the replica to be promoted", || {
        cluster.is_primary(new).then_some(())
    });
    cluster.wait_until_all_agree();
}

/// Has a replica be voted for. It gives up after five seconds, if the machine stalls for as long.
#[track_caller]
fn fail_over(cluster: &Cluster, new: usize, line: &str) {
    let mut c = cluster.client(new);
    assert_eq!(c.text(line), "OK");
    let mut asked = Instant::now();
    wait_for("the replica to be promoted", || {
        if asked.elapsed() > Duration::from_secs(6) {
            c.call(line);
            asked = Instant::now();
        }
        cluster.is_primary(new).then_some(())
    });
    cluster.wait_until_all_agree();
}

/// Valkey 9 leaves it to the module where its node is one of a cluster, and then it is told a moment later.
fn is_unblocked(kind: Kind, waiter: Later) {
    let word = match kind {
        Kind::Valkey9 => "TRYAGAIN ",
        _ => "UNBLOCKED ",
    };
    match waiter.reply() {
        Reply::Error(error) => assert!(error.starts_with(word), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// Each shard gets it in another way.
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

/// There and back: it costs nothing at all.
fn by_consent(cluster: &mut Cluster, shard: usize) -> Checked {
    // From now on the clock does not help: a new primary must know the old one's fences.
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
    fail_over(cluster, new, "CLUSTER FAILOVER");
    for waiter in waiters {
        is_unblocked(cluster.nodes[old].kind, waiter);
    }
    // The same hold, and who asks here has it next.
    assert_eq!(after.int(&acquire("a")), fence);
    let b = wait(new, "b");
    assert_eq!(after.int(&format!("LOCK.RELEASE {key} a")), 1);
    assert!(b.fence() > fence);
    assert_eq!(after.int(&format!("LOCK.RELEASE {key} b")), 1);
    let error = before.error(&format!("{} BLOCK 0", acquire("c")));
    assert!(error.starts_with("MOVED "), "{error}");
    cluster.nodes[old].wait_until_link_is_up();
}

/// A replica that was not told of the last grants takes over: the case that no asynchronous replication can help.
fn by_takeover(cluster: &mut Cluster, shard: usize) -> Checked {
    let checked = promote(cluster, shard, |cluster, key| {
        let replica = &cluster.nodes[shard + SHARDS];
        let mut c = cluster.client(shard);
        let mut takes_over = replica.raw();
        replica.signal("STOP");
        takes_over.send("CLUSTER FAILOVER TAKEOVER");
        // More than it can read at once, so that what comes behind is on its way when it takes over. Valkey 9 reads on as long as
        // there is something, so there it is more than the connection holds.
        let much = match cluster.nodes[shard].kind {
            Kind::Valkey9 => vec![b'x'; 32 << 20],
            _ => vec![b'x'; 500_000],
        };
        let same_slot = format!("{{{key}}}");
        c.send(&[b"SET", same_slot.as_bytes(), &much]);
        let a = take(&mut c, key, "a");
        let mut offset = || c.info("master_repl_offset").parse::<u64>().unwrap();
        let before = offset();
        wait_for("the crowd to go on", || {
            (offset() > before + 2_000).then_some(())
        });
        replica.signal("CONT");
        assert_eq!(takes_over.line().as_deref(), Some("+OK"));
        wait_until_promoted(cluster, shard + SHARDS);
        // Two believe to hold it now. The fence tells which of them is the later one.
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
        fail_over(cluster, shard + SHARDS, "CLUSTER FAILOVER FORCE");
        Vec::new()
    })
}

/// Lets the replica of a shard become its primary by `act`, which gets a key for itself and answers who holds it, and judges what
/// the crowd saw.
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
        let error = c.error(&format!("LOCK.RELEASE {held} a"));
        assert!(error.starts_with("MOVED "), "{error}");
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
        unreplicated,
        excused,
    } = checked;
    let times = scale();
    figure(
        kind,
        &format!(
            "{times} × {what}: {holds} holds, {pairs} pairs of them compared; {unreplicated} were unknown to the new primary, \
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

/// A primary sleeps through the vote, and does what was asked of it meanwhile before it learns that it is none any more.
fn by_stop(cluster: &mut Cluster, shard: usize) -> Checked {
    promote(cluster, shard, |cluster, _| {
        let primary = &cluster.nodes[shard];
        cluster.believe_failures_after_ms(1_000);
        primary.signal("STOP");
        wait_for("the replica to be promoted", || {
            cluster.is_primary(shard + SHARDS).then_some(())
        });
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
        // It comes back as the replica of the one that took its place.
        cluster.nodes[0].start_again();
        wait_for("the old primary to follow", || {
            (!cluster.is_primary(0)).then_some(())
        });
        cluster.nodes[0].wait_until_link_is_up();
        let error = cluster.client(0).error(&format!("LOCK.RELEASE {held} a"));
        assert!(error.starts_with("MOVED "), "{error}");
        work();
        struck_us
    });
    let account = &Account::of(&cluster.nodes[SHARDS]);
    check_all(&journal, Some(&Promotion { account, struck_us }))
}
