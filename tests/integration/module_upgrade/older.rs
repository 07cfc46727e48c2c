//! This release beside one that knows no limits: it refuses locks with a counted hold as those of a
//! later version, and reads all others.
//!
//! `REDIS_LOCK_OLDER_MODULE` is the module of a release before LIMIT, 0.1.0 for example.

use std::path::PathBuf;

use super::holds;
use crate::harness::{module, wait_for, Client, Cluster, Kind, Reply, Server, Setup, SHARDS};

const KINDS: [Kind; 5] = [
    Kind::Redis6_2,
    Kind::Redis7_0,
    Kind::Redis8_2,
    Kind::Valkey8_0,
    Kind::Valkey9,
];

/// The older module's own words in the log.
const SAID: &str = "in a format that this version of the module does not know";

const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

fn older() -> PathBuf {
    let path = std::env::var_os("REDIS_LOCK_OLDER_MODULE");
    let path =
        PathBuf::from(path.expect("REDIS_LOCK_OLDER_MODULE, the module of an older release"));
    assert!(path.exists(), "{path:?}");
    path
}

fn start_older(kind: Kind, options: &[&str]) -> Server {
    Server::start_as(kind, Setup::with_module_at(&older(), options))
}

#[test]
#[ignore = "run by hand with REDIS_LOCK_OLDER_MODULE: cargo test --test integration -- --ignored module_upgrade::older"]
fn an_older_module_reads_all_but_limits() {
    for kind in KINDS {
        older_replica_of_newer(kind);
        newer_replica_of_older(kind);
        payloads(kind);
        older_replica_of_limits(kind);
    }
}

fn take_some(c: &mut Client) {
    c.int("LOCK.ACQUIRE exclusive me 100000000");
    for reader in ["a", "b"] {
        c.int(&format!("RWLOCK.RLOCK shared {reader} 100000000"));
    }
}

/// These end without a limit, so their records are in the older version.
fn use_limits_for_a_while(c: &mut Client) {
    c.int("LOCK.ACQUIRE one me 100000000 LIMIT 1");
    c.int("RWLOCK.RLOCK left a 100000000");
    c.int("LOCK.ACQUIRE left b 100000000 LIMIT 5");
    c.int("LOCK.RELEASE left b");
}

fn older_replica_of_newer(kind: Kind) {
    let primary = Server::start_with(kind, &AT_ONCE);
    let mut c = primary.client();
    take_some(&mut c);
    use_limits_for_a_while(&mut c);
    let port = primary.port.to_string();
    let of = [&AT_ONCE[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let replica = start_older(kind, &of);
    replica.wait_until_it_follows(&primary);
    let mut r = replica.client();
    holds::assert_same(&holds::of(&mut r), &holds::of(&mut c), "by a snapshot");
    c.int("LOCK.RENEW exclusive me 200000000");
    c.int("LOCK.ACQUIRE another me 100000000 LIMIT 1");
    c.int("LOCK.RELEASE shared a");
    replica.wait_until_it_follows(&primary);
    holds::assert_same(&holds::of(&mut r), &holds::of(&mut c), "by effects");
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
    // A limit is left out, and all others go on.
    c.int("LOCK.ACQUIRE counted me 100000000 LIMIT 2");
    c.int("LOCK.ACQUIRE later me 100000000");
    replica.wait_until_it_follows(&primary);
    wait_for("the replica to say so", || {
        replica.log().contains("CRITICAL").then_some(())
    });
    assert!(replica.log().contains("unknown version"));
    assert_eq!(r.call("LOCK.INFO counted"), Reply::Nil);
    assert_eq!(r.holders("later"), ["me"]);
}

fn newer_replica_of_older(kind: Kind) {
    let primary = start_older(kind, &AT_ONCE);
    let mut c = primary.client();
    take_some(&mut c);
    let replica = Server::start_replica_of(&primary, &AT_ONCE);
    c.int("LOCK.ACQUIRE another me 100000000");
    c.int("LOCK.RELEASE shared a");
    replica.wait_until_it_follows(&primary);
    let mut r = replica.client();
    holds::assert_same(&holds::of(&mut r), &holds::of(&mut c), "a newer replica");
}

fn payloads(kind: Kind) {
    let (newer, older) = (Server::start(kind), start_older(kind, &[]));
    let (mut n, mut o) = (newer.client(), older.client());
    take_some(&mut n);
    use_limits_for_a_while(&mut n);
    n.int("LOCK.ACQUIRE counted me 100000000 LIMIT 2");
    n.int("RWLOCK.RLOCK mixed a 100000000");
    n.int("LOCK.ACQUIRE mixed b 100000000 LIMIT 5");
    for (key, is_read) in [
        ("exclusive", true),
        ("shared", true),
        ("one", true),
        ("left", true),
        ("counted", false),
        ("mixed", false),
    ] {
        let dump = n.call(&format!("DUMP {key}"));
        match o.restore(&format!("{key} 0"), dump.as_bytes()) {
            Reply::Error(error) if !is_read => {
                assert!(error.contains("Bad data format"), "{error}")
            }
            Reply::Simple(_) if is_read => assert_eq!(o.call(&format!("DUMP {key}")), dump),
            other => panic!("{key}: {other:?}"),
        }
    }
}

fn older_replica_of_limits(kind: Kind) {
    let primary = Server::start_with(kind, &AT_ONCE);
    primary
        .client()
        .int("LOCK.ACQUIRE counted me 100000000 LIMIT 2");
    let (module, port) = (older(), primary.port.to_string());
    let load = ["--loadmodule", module.to_str().unwrap()];
    let of = [&load[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let (log, _) = Server::start_that_ends(kind, &of);
    assert!(log.contains(SAID), "{log}");
    assert!(!log.contains("BUG REPORT"), "{log}");
}

#[test]
#[ignore = "run by hand with REDIS_LOCK_OLDER_MODULE: cargo test --test integration -- --ignored module_upgrade::older"]
fn a_cluster_is_upgraded_from_an_older_module() {
    for kind in KINDS {
        a_cluster_is_upgraded(kind);
    }
}

/// The order of docs/UPGRADING.md in each shard: the replica, a failover, the old primary.
fn a_cluster_is_upgraded(kind: Kind) {
    let mut cluster = Cluster::start_with_module_at(kind, &older(), &[]);
    let keys: Vec<_> = (0..SHARDS).map(|shard| cluster.keys_of(shard, 4)).collect();
    for (shard, keys) in keys.iter().enumerate() {
        let mut c = cluster.client(shard);
        c.int(&format!("LOCK.ACQUIRE {} me 100000000", keys[0]));
        for reader in ["a", "b"] {
            c.int(&format!("RWLOCK.RLOCK {} {reader} 100000000", keys[1]));
        }
    }
    let of = |shard| holds::of(&mut cluster.client(shard));
    let before: [_; SHARDS] = std::array::from_fn(of);
    for (shard, keys) in keys.iter().enumerate() {
        let replica = shard + SHARDS;
        assert_eq!(before[shard].len(), 3);
        upgrade(&mut cluster, replica, shard);
        // An effect of the older primary.
        let fence = cluster
            .client(shard)
            .int(&format!("LOCK.ACQUIRE {} me 100000000", keys[2]));
        cluster.fail_over(replica, "CLUSTER FAILOVER");
        let mut c = cluster.client(replica);
        assert_eq!(c.int(&format!("LOCK.CHECK {} me", keys[2])), fence);
        assert_eq!(c.int(&format!("LOCK.RELEASE {} me", keys[2])), 1);
        // And one of the newer primary, whose replica is older.
        assert!(c.int(&format!("LOCK.ACQUIRE {} me 100000000", keys[3])) > fence);
        cluster.nodes[shard].wait_until_it_follows(&cluster.nodes[replica]);
        assert_eq!(c.int(&format!("LOCK.RELEASE {} me", keys[3])), 1);
        upgrade(&mut cluster, shard, replica);
    }
    // The primaries are the former replicas, and the old ones follow them.
    for nodes in [[3, 4, 5], [0, 1, 2]] {
        for (node, before) in nodes.into_iter().zip(&before) {
            let mut c = cluster.client(node);
            c.text("READONLY");
            holds::assert_same(&holds::of(&mut c), before, "after the upgrade");
        }
    }
}

/// Restarts a replica with this module.
fn upgrade(cluster: &mut Cluster, node: usize, primary: usize) {
    cluster.nodes[node].shut_down();
    cluster.nodes[node].start_again_with_module_at(&module());
    cluster.wait_until_all_agree();
    cluster.nodes[node].wait_until_it_follows(&cluster.nodes[primary]);
    // It has a new port, and whoever has no link to it cannot vote for it.
    for node in &cluster.nodes {
        let mut c = node.client();
        wait_for("links to all nodes", || {
            let nodes = c.text("CLUSTER NODES");
            (!nodes.contains("disconnected")).then_some(())
        });
    }
}
