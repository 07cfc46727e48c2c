//! Sentinel and Cluster, both modules of the crate beside each other.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)]

mod common;
#[path = "topologies/sentinel.rs"]
mod sentinel;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Admin, BOUND, Cluster, Proxy, Sentinels, Server, eventually};
use redis_lock_client::{Error, Options, Sentinel, aio, sync};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The time that a failover may take on a busy machine, and what it takes to go on.
const LONG: Duration = Duration::from_secs(40);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

struct Keys {
    held: String,
    waited: String,
}

/// Holds two locks and waits for two, in both ways, while the primary dies. `fail_over` ends it and
/// returns the next one.
fn goes_on_over_a_failover(
    (sync, aio): (&sync::LockClient, &aio::LockClient),
    old: &mut Admin,
    keys: &Keys,
    fail_over: impl FnOnce() -> Admin,
) {
    let runtime = runtime();
    let aio_held = format!("{{{}}}aio", keys.held);
    let held = sync.lock(&keys.held).lock().unwrap();
    let watched = held.keep_alive();
    let held_too = runtime.block_on(aio.lock(&aio_held).lock()).unwrap();
    let watched_too = runtime.block_on(async { held_too.keep_alive() });
    old.run(&["LOCK.ACQUIRE", &keys.waited, "holder", "60000"]);

    let (granted, grants) = mpsc::channel();
    let lock = sync.lock(&keys.waited).with_token("sync waiter");
    let waiting = thread::spawn({
        let granted = granted.clone();
        move || {
            let guard = lock.lock_timeout(LONG).unwrap().unwrap();
            granted.send(("sync", guard.fence())).unwrap();
            guard.unlock().unwrap();
        }
    });
    old.await_waiters(&keys.waited, 1);
    let lock = aio.lock(&keys.waited).with_token("aio waiter");
    let waiting_too = runtime.spawn(async move {
        let guard = lock.lock_timeout(LONG).await.unwrap().unwrap();
        granted.send(("aio", guard.fence())).unwrap();
        guard.unlock().await.unwrap();
    });
    old.await_waiters(&keys.waited, 2);
    let fence = old.int(&["LOCK.CHECK", &keys.waited, "holder"]);
    assert_eq!(old.int(&["WAIT", "1", "20000"]), 1);

    let mut new = fail_over();
    // Both ask the new primary, each with its own token.
    let end = Instant::now() + LONG;
    while new.waiters(&keys.waited) < 2 {
        assert!(
            Instant::now() < end,
            "they wait: {}",
            new.info(&keys.waited)
        );
        thread::sleep(ms(20));
    }
    let info = new.info(&keys.waited);
    assert!(
        info.contains("sync waiter") && info.contains("aio waiter"),
        "{info}"
    );
    assert!(grants.try_recv().is_err(), "the holder holds it still");
    assert_eq!(new.int(&["LOCK.RELEASE", &keys.waited, "holder"]), 1);
    let mut grants = [(); 2].map(|()| grants.recv_timeout(BOUND).unwrap());
    waiting.join().unwrap();
    runtime.block_on(waiting_too).unwrap();
    assert!(
        grants
            .iter()
            .all(|(_, given)| *given > fence.cast_unsigned())
    );
    grants.sort_unstable();
    assert_eq!(grants.map(|(who, _)| who), ["aio", "sync"]);

    // The holds went on, with their fences.
    assert!(!watched.is_lost() && !watched_too.is_lost());
    assert!(held.check().unwrap());
    held.renew().unwrap();
    let fence = new.int(&[
        "LOCK.CHECK",
        &keys.held,
        std::str::from_utf8(held.token()).unwrap(),
    ]);
    assert_eq!(fence.cast_unsigned(), held.fence());
    runtime.block_on(held_too.renew()).unwrap();
    held.unlock().unwrap();
    runtime.block_on(held_too.unlock()).unwrap();
    assert!(new.is_free(&keys.held) && new.is_free(&aio_held));
    drop((watched, watched_too));
}

#[test]
fn sentinel_failover_in_the_middle_of_a_wait_and_of_a_hold() {
    let mut sentinels = Sentinels::start();
    let sentinel = Sentinel::new(sentinels.addresses(), "locks").unwrap();
    let runtime = runtime();
    let sync = sync::LockClient::sentinel(sentinel.clone(), Options::default());
    let aio = runtime
        .block_on(async { aio::LockClient::sentinel(sentinel, Options::default()) })
        .unwrap();
    let mut old = sentinels.servers[0].admin();
    let keys = Keys {
        held: "held".to_owned(),
        waited: "waited".to_owned(),
    };
    goes_on_over_a_failover((&sync, &aio), &mut old, &keys, || {
        let killed = sentinels.servers.swap_remove(0);
        drop(killed);
        let mut new = None;
        // The sentinel closes the connections of a server when it gives it another role.
        eventually("there is a new primary", || {
            let mut admin = sentinels.servers[0].try_admin();
            let role = admin.as_mut().map(|admin| admin.ask(&["ROLE"]));
            let is_primary =
                matches!(role, Some(Ok(role)) if format!("{role:?}").contains("\"master\""));
            new = admin.filter(|_| is_primary);
            new.is_some()
        });
        let mut new = new.unwrap();
        eventually("connections last", || {
            if new.ask(&["PING"]).is_err()
                && let Some(admin) = sentinels.servers[0].try_admin()
            {
                new = admin;
                return false;
            }
            true
        });
        new
    });
}

#[test]
fn sentinel_that_knows_no_such_primary() {
    let sentinels = Sentinels::start();
    let sentinel = Sentinel::new(sentinels.addresses(), "other").unwrap();
    let options = Options::default().reconnect(ms(100));
    let locks = sync::LockClient::sentinel(sentinel.clone(), options.clone());
    let error = locks.lock("k").lock().unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
    let runtime = runtime();
    let error = runtime.block_on(async {
        let locks = aio::LockClient::sentinel(sentinel, options).unwrap();
        locks.lock("k").lock().await.unwrap_err()
    });
    assert!(error.to_string().contains("other"), "{error}");
}

fn clients(
    cluster: &Cluster,
    runtime: &tokio::runtime::Runtime,
) -> (sync::LockClient, aio::LockClient) {
    let sync = sync::LockClient::cluster(cluster.urls(), Options::default()).unwrap();
    let aio = runtime
        .block_on(async { aio::LockClient::cluster(cluster.urls(), Options::default()) })
        .unwrap();
    (sync, aio)
}

#[test]
fn cluster_failover_in_the_middle_of_a_wait_and_of_a_hold() {
    let mut cluster = Cluster::start();
    let runtime = runtime();
    let (sync, aio) = clients(&cluster, &runtime);
    let mut old = cluster.nodes[0].admin();
    let keys = Keys {
        held: cluster.key_of(0, "held"),
        waited: cluster.key_of(0, "waited"),
    };
    goes_on_over_a_failover((&sync, &aio), &mut old, &keys, || {
        let killed = cluster.nodes.swap_remove(0);
        drop(killed);
        // The replica has its place in the list now.
        let new: &Server = &cluster.nodes[0];
        let mut role = new.admin();
        eventually("there is a new primary", || {
            let role = format!("{:?}", role.run(&["ROLE"]));
            role.contains("\"master\"")
        });
        new.admin()
    });
}

#[test]
fn cluster_slot_that_moves_under_a_waiter() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let (sync, aio) = clients(&cluster, &runtime);
    let mut source = cluster.nodes[1].admin();
    let mut target = cluster.nodes[2].admin();
    let key = cluster.key_of(1, "moves");
    source.run(&["LOCK.ACQUIRE", &key, "holder", "60000"]);
    let lock = sync.lock(&key).with_token("sync waiter");
    let waiting = thread::spawn(move || lock.lock_timeout(LONG).unwrap().unwrap().unlock());
    source.await_waiters(&key, 1);
    let lock = aio.lock(&key).with_token("aio waiter");
    let waiting_too = runtime.spawn(async move {
        let guard = lock.lock_timeout(LONG).await.unwrap().unwrap();
        guard.unlock().await
    });
    source.await_waiters(&key, 2);

    cluster.move_slot(&key, 1, 2);
    target.await_waiters(&key, 2);
    let info = target.info(&key);
    assert!(
        info.contains("sync waiter") && info.contains("aio waiter"),
        "{info}"
    );
    let start = Instant::now();
    assert_eq!(target.int(&["LOCK.RELEASE", &key, "holder"]), 1);
    waiting.join().unwrap().unwrap();
    runtime.block_on(waiting_too).unwrap().unwrap();
    // It heard of its grant at the new node. Otherwise it would have asked after its slice.
    assert!(start.elapsed() < ms(4_000), "{:?}", start.elapsed());
    assert!(target.is_free(&key));
}

#[test]
fn cluster_slot_that_is_on_its_way() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let (sync, aio) = clients(&cluster, &runtime);
    let mut source = cluster.nodes[1].admin();
    let key = cluster.key_of(1, "asked");
    let slot = cluster.begin_to_move(&key, 1, 2);
    // A lock that is free is taken where the slot goes: ASK.
    for _ in 0..2 {
        let guard = sync.lock(&key).lock().unwrap();
        assert!(sync.lock(&key).try_lock().unwrap().is_none());
        guard.renew().unwrap();
        let sent_on = source.ask(&["LOCK.CHECK", &key, "t"]).unwrap_err();
        assert_eq!(sent_on.code(), Some("ASK"));
        guard.unlock().unwrap();
        runtime.block_on(async {
            let guard = aio.lock(&key).lock().await.unwrap();
            guard.renew().await.unwrap();
            guard.unlock().await.unwrap();
        });
    }
    cluster.end_move(&slot, 1, 2);
    sync.lock(&key).lock().unwrap().unlock().unwrap();
}

#[test]
fn cluster_locks_are_spread_by_key() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let (sync, aio) = clients(&cluster, &runtime);
    for node in 0..3 {
        let key = cluster.key_of(node, "k");
        let mut admin = cluster.nodes[node].admin();
        let (one, two) = (format!("{{{key}}}1"), format!("{{{key}}}2"));

        let both = sync.multi_lock([&one]).and_shared([&two]).lock().unwrap();
        assert!(!admin.is_free(&one) && !admin.is_free(&two));
        let () = both
            .exec(redis::cmd("SET").arg(format!("{{{key}}}v")).arg(1))
            .unwrap();
        let lock = aio.multi_lock([&two, &one]);
        let waiting = runtime.spawn(async move { lock.lock().await });
        admin.await_waiters(&one, 1);
        // By its channel, as its connection is shared.
        let info = admin.info(&one);
        assert!(info.contains("channel"), "{info}");
        both.unlock().unwrap();
        let both = runtime.block_on(waiting).unwrap().unwrap();
        assert!(!admin.is_free(&one) && !admin.is_free(&two));
        runtime.block_on(both.unlock()).unwrap();
        assert!(admin.is_free(&one) && admin.is_free(&two));
    }
    for key in ["{tag} k", "a}b{c d", "\r\n"] {
        let (held, lock) = (sync.lock(key).lock().unwrap(), aio.lock(key));
        assert!(runtime.block_on(lock.try_lock()).unwrap().is_none());
        let waiting = runtime.spawn(async move { lock.lock_timeout(BOUND).await });
        thread::sleep(ms(100));
        held.unlock().unwrap();
        let guard = runtime.block_on(waiting).unwrap().unwrap().unwrap();
        runtime.block_on(guard.unlock()).unwrap();
    }
    let keys = [0, 1].map(|node| cluster.key_of(node, "k"));
    let error = sync.multi_lock(&keys).lock().unwrap_err();
    assert!(matches!(error, Error::CrossSlot(_)), "{error}");
    assert!(error.to_string().contains("{tag}"), "{error}");
    let error = runtime.block_on(aio.multi_lock(&keys).lock()).unwrap_err();
    assert!(matches!(error, Error::CrossSlot(_)), "{error}");
}

/// A node that is there and silent, which no connection tells.
#[test]
fn cluster_failover_of_a_silent_node() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let (sync, aio) = clients(&cluster, &runtime);
    let key = cluster.key_of(0, "silent");
    sync.lock(&key).lock().unwrap().unlock().unwrap();
    runtime.block_on(async { aio.lock(&key).lock().await.unwrap().unlock().await.unwrap() });
    // A slot that nobody has listened for.
    let other = cluster.key_of(0, "unheard");
    cluster.nodes[0].freeze();
    let taken = thread::spawn({
        let lock = sync.lock(&key);
        move || lock.lock_timeout(LONG).unwrap().unwrap().unlock()
    });
    let taken_too = [&key, &other].map(|key| {
        let lock = aio.lock(key);
        runtime.spawn(async move { lock.lock_timeout(LONG).await?.unwrap().unlock().await })
    });
    taken.join().unwrap().unwrap();
    for taken in taken_too {
        runtime.block_on(taken).unwrap().unwrap();
    }
    let mut new = cluster.nodes[3].admin();
    assert!(new.is_free(&key) && new.is_free(&other));
    cluster.nodes[0].thaw();
}

/// The grant of a contended lock, over the shard's channel or a connection that blocks: the waiter is
/// the holder.
async fn waits_for(
    (locks, holders): (&aio::LockClient, &aio::LockClient),
    primary: &mut Admin,
    key: &str,
) {
    let held = holders.lock(key).lock().await.unwrap();
    let lock = locks.lock(key).with_token("waiter");
    let waiting = tokio::spawn(async move { lock.lock_timeout(LONG).await });
    primary.await_waiters(key, 1);
    let begin = Instant::now();
    held.unlock().await.unwrap();
    let guard = waiting.await.unwrap().unwrap().unwrap();
    let took = begin.elapsed();
    let fence = primary.int(&["LOCK.CHECK", key, "waiter"]);
    assert_eq!(fence.cast_unsigned(), guard.fence(), "it holds the lock");
    // It heard of it. Otherwise its grace of 5 s or its slice of 10 s would have passed.
    assert!(took < ms(4_000), "{took:?}");
    guard.unlock().await.unwrap();
}

#[test]
fn cluster_failover_between_two_waits() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let (sync, aio) = clients(&cluster, &runtime);
    let (_, holders) = clients(&cluster, &runtime);
    let keys = ["first", "second"].map(|name| cluster.key_of(0, name));
    let mut primaries = [0, 3].map(|node| cluster.nodes[node].admin());
    // There and back.
    for turn in 0..3 {
        let primary = &mut primaries[turn % 2];
        for key in &keys {
            runtime.block_on(waits_for((&aio, &holders), primary, key));
            let held = sync.lock(key).lock().unwrap();
            let lock = sync.lock(key).with_token("sync waiter");
            let waiting = thread::spawn(move || lock.lock_timeout(LONG).unwrap().unwrap());
            primary.await_waiters(key, 1);
            held.unlock().unwrap();
            let guard = waiting.join().unwrap();
            let fence = primary.int(&["LOCK.CHECK", key, "sync waiter"]);
            assert_eq!(fence.cast_unsigned(), guard.fence());
            guard.unlock().unwrap();
        }
        if turn < 2 {
            fail_over(&mut primaries, turn % 2);
        }
    }
}

fn has_role(server: &mut Admin, role: &str) -> bool {
    format!("{:?}", server.run(&["ROLE"])).contains(&format!("{role:?}"))
}

/// Lets the other one of two nodes take over, with no write lost.
fn fail_over([one, other]: &mut [Admin; 2], from: usize) {
    let (old, new) = if from == 0 {
        (one, other)
    } else {
        (other, one)
    };
    // The others do not vote twice within two node time-outs. An attempt ends after 5 s.
    let mut asked: Option<Instant> = None;
    eventually("a clean failover", || {
        let may_ask = asked.is_none_or(|at| at.elapsed() > ms(5_500));
        if may_ask && new.ask(&["CLUSTER", "FAILOVER"]).is_ok() {
            asked = Some(Instant::now());
        }
        has_role(new, "master") && has_role(old, "slave")
    });
}

/// One address, behind which the replica takes the place of the primary that lives on.
#[test]
fn planned_failover_behind_one_address() {
    let old = Server::start();
    let port = old.port.to_string();
    let new = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let proxy = Proxy::to(old.port);
    let runtime = runtime();
    let open = || aio::LockClient::open(proxy.url(), Options::default()).unwrap();
    let client = redis::Client::open(proxy.url()).unwrap();
    let (owner, holders, programs) = runtime.block_on(async {
        let manager = client.get_connection_manager().await.unwrap();
        let programs = aio::LockClient::with_connection(client, manager, Options::default());
        (open(), open(), programs.unwrap())
    });
    let mut primary = old.admin();
    for locks in [&owner, &programs] {
        runtime.block_on(waits_for((locks, &holders), &mut primary, "k"));
    }
    eventually("a failover", || {
        let to = new.port.to_string();
        primary.ask(&["FAILOVER", "TO", "127.0.0.1", &to]).is_ok()
    });
    proxy.lead_to(new.port);
    let mut replica = primary;
    let mut primary = new.admin();
    eventually("there is a new primary", || {
        has_role(&mut primary, "master")
    });
    eventually("the old one follows", || has_role(&mut replica, "slave"));
    // A pool of the program's closes what an old primary has; the connection that listens is no part of it.
    replica.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    for locks in [&owner, &programs] {
        for _ in 0..2 {
            runtime.block_on(waits_for((locks, &holders), &mut primary, "k"));
        }
    }
}

/// As when a firewall has forgotten it: the node has no receiver any more, and the client does not know.
#[test]
fn cluster_connection_that_listens_and_was_forgotten() {
    let cluster = Cluster::start();
    let proxy = Proxy::to(cluster.nodes[1].port);
    let port = proxy.port.to_string();
    let key = cluster.key_of(1, "forgotten");
    let mut node = cluster.nodes[1].admin();
    node.run(&["CONFIG", "SET", "cluster-announce-port", &port]);
    let runtime = runtime();
    let open = || aio::LockClient::cluster([proxy.url()], Options::default()).unwrap();
    let (locks, holders) = runtime.block_on(async { (open(), open()) });
    runtime.block_on(waits_for((&locks, &holders), &mut node, &key));
    assert!(proxy.subscribed() > 0);
    proxy.forget_subscribed();
    // It notices while it waits.
    node.run(&["LOCK.ACQUIRE", &key, "holder", "60000"]);
    let lock = locks.lock(&key);
    let waiting = runtime.spawn(async move { lock.lock_timeout(LONG).await });
    eventually("it listens again", || proxy.subscribed() == 1);
    node.await_waiters(&key, 1);
    let start = Instant::now();
    node.run(&["LOCK.RELEASE", &key, "holder"]);
    let guard = runtime.block_on(waiting).unwrap().unwrap().unwrap();
    assert!(start.elapsed() < ms(4_000), "{:?}", start.elapsed());
    runtime.block_on(guard.unlock()).unwrap();
    runtime.block_on(waits_for((&locks, &holders), &mut node, &key));
}
