//! Slots move to and fro by both methods under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::super::checker::{check, Checked};
use super::super::journal::Hold;
use super::super::load_clients::with_load_clients;
use super::super::slots::assert_none_is_half;
use super::replicas_agree;
use crate::harness::{cluster_connection, figure, now_us, scale, wait_for};
use crate::harness::{Cluster, Kind, SetWhenDropped, SHARDS};
use crate::stats::{held, stats};

on_servers![[redis_8_6 Redis8_6, valkey_9 Valkey9] slots_that_move_key_by_key_or_atomically_lose_nothing];

/// The ttl of holds that a client never releases.
const FORGOTTEN_MS: u64 = 40;

fn slots_that_move_key_by_key_or_atomically_lose_nothing(kind: Kind) {
    let mut cluster = Cluster::start(kind);
    let keys = cluster.keys_of(0, 4);
    let rounds = 7 * scale();
    let (mut journal, (forgotten, moves)) = with_load_clients(&mut cluster, &keys, |cluster| {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let forgetful = scope.spawn(|| forget(&cluster.addresses(), &keys[0], &over));
            let over = SetWhenDropped(&over);
            let mut moves = [0; 2];
            for round in 0..rounds {
                let [from, to] = [round, round + 1].map(|n| n % SHARDS);
                for (n, key) in keys.iter().enumerate() {
                    let is_atomic = (round + n) % 3 != 0;
                    move_slot(cluster, cluster.slot(key), from, to, is_atomic);
                    moves[usize::from(is_atomic)] += 1;
                }
            }
            drop(over);
            (forgetful.join().expect("a client that ends well"), moves)
        })
    });
    let deadlines = forgotten.len();
    journal.holds.extend(forgotten);
    let Checked { holds, pairs, .. } = check(&journal.holds, None).unwrap_or_else(|breaches| {
        let (count, errors) = (breaches.len(), &journal.errors);
        panic!("{count} breaches, {errors:?}; the first:\n{}", breaches[0])
    });
    let [classic, atomic] = moves;
    let errors = &journal.errors;
    assert!(holds > 10 * (classic + atomic), "{holds} {errors:?}");
    assert!(deadlines > rounds, "{deadlines} {errors:?}");
    nobody_waits_and_nothing_is_held(&cluster);
    replicas_agree(&cluster);
    let both = assert_none_is_half(&cluster);
    figure(
        kind,
        &format!(
            "{atomic} slots moved atomically and {classic} key by key, {holds} holds of the clients, {deadlines} of them ended by their \
             deadlines, {pairs} pairs compared, none lost or held twice, \
             {both} grants of two keys whole, no waiter left; what reached the clients: {errors:?}"
        ),
    );
}

fn move_slot(cluster: &Cluster, slot: i64, from: usize, to: usize, is_atomic: bool) {
    if is_atomic {
        cluster.begin_to_migrate([slot; 2], from, to);
        cluster.end_of_migration(from, to);
    } else {
        cluster.begin_to_move(slot, from, to);
        thread::sleep(Duration::from_millis(20));
        cluster.move_keys(slot, from, to);
        cluster.end_of_move(slot, from, to);
    }
    cluster.wait_until_all_agree();
}

/// Takes a lock repeatedly and never releases it, so that only its deadline ends the hold.
fn forget(addresses: &[String], key: &str, over: &AtomicBool) -> Vec<Hold> {
    let mut holds = Vec::new();
    let mut connection = cluster_connection(addresses).expect("a connection");
    for n in 0.. {
        let token = format!("forgetful.{n}");
        let mut acquire = redis::cmd("LOCK.ACQUIRE");
        acquire.arg(key).arg(&token).arg(FORGOTTEN_MS);
        acquire.arg("BLOCK").arg(500);
        let first_asked_us = now_us();
        let mut is_answered = false;
        while !is_answered {
            if over.load(Ordering::Relaxed) {
                return holds;
            }
            let asked_us = now_us();
            match acquire.query::<Option<u64>>(&mut connection) {
                Ok(Some(fence)) => {
                    let end_us = asked_us + FORGOTTEN_MS * 1_000;
                    let instants = [first_asked_us, now_us(), end_us];
                    let hold = Hold::exclusive(key, &token, fence, instants);
                    holds.push(Hold {
                        released: None,
                        ..hold
                    });
                    is_answered = true;
                }
                Ok(None) => is_answered = true,
                Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                    connection = cluster_connection(addresses).expect("a connection");
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
    holds
}

#[track_caller]
fn nobody_waits_and_nothing_is_held(cluster: &Cluster) {
    for node in 0..SHARDS {
        let mut c = cluster.client(node);
        wait_for("the last holds to end", || {
            (held(&mut c) == [0, 0, 0, 0]).then_some(())
        });
        assert_eq!(stats(&mut c)["waiters"], 0, "node {node}");
        assert_eq!(c.int("DBSIZE"), 0, "node {node}");
    }
}
