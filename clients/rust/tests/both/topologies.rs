//! Sentinel and Cluster: failovers, slots that move, nodes and sentinels that are silent.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use redis_lock_client::{Error, Options, Sentinel};

use super::common::{Admin, BOUND, Cluster, Proxy, Sentinels, Server, eventually};
use super::{LISTENS, cluster, library, ms, now, open, sentinel};

fn has_role(server: &mut Admin, role: &str) -> bool {
    let answer = server.ask(&["ROLE"]);
    answer.is_ok_and(|answer| format!("{answer:?}").contains(&format!("{role:?}")))
}

/// Waits for a lock in a thread.
fn waiter(locks: &library::LockClient, key: &str) -> thread::JoinHandle<library::Guard> {
    let lock = locks.lock(key).with_token("waiter");
    thread::spawn(move || now(lock.lock_timeout(BOUND)).unwrap().unwrap())
}

/// The grant of a contended lock, over the shard's channel or a connection that blocks: the waiter
/// is the holder.
fn waits_for(
    (locks, holders): (&library::LockClient, &library::LockClient),
    primary: &mut Admin,
    key: &str,
) {
    let held = now(holders.lock(key).lock()).unwrap();
    let waiting = waiter(locks, key);
    primary.await_waiters(key, 1);
    let begin = Instant::now();
    now(held.unlock()).unwrap();
    let guard = waiting.join().unwrap();
    // It heard of it. Otherwise its grace of 5 s or its slice of 10 s would have passed.
    assert!(begin.elapsed() < ms(4_000), "{:?}", begin.elapsed());
    let checked = primary.int(&["LOCK.CHECK", key, "waiter"]);
    assert_eq!(checked.cast_unsigned(), guard.fence(), "it holds the lock");
    now(guard.unlock()).unwrap();
}

#[test]
fn sentinel_failover_in_the_middle_of_a_wait_and_of_a_hold() {
    let mut sentinels = Sentinels::start();
    let named = Sentinel::new(sentinels.addresses(), "locks").unwrap();
    let locks = sentinel(named, Options::default());
    let mut old = sentinels.servers[0].admin();
    let guard = now(locks.lock("held").with_token("owner").lock()).unwrap();
    let watched = guard.keep_alive();
    let fence = old.int(&["LOCK.ACQUIRE", "waited", "holder", "60000"]);
    let waiting = waiter(&locks, "waited");
    old.await_waiters("waited", 1);
    assert_eq!(old.int(&["WAIT", "1", "20000"]), 1);
    drop(sentinels.servers.swap_remove(0));
    let new = &sentinels.servers[0];
    eventually("there is a new primary", || {
        let admin = new.try_admin();
        admin.is_some_and(|mut admin| has_role(&mut admin, "master"))
    });
    // The sentinel closes the connections of a server when it gives it another role.
    thread::sleep(ms(100));
    let mut new = new.admin();
    // It asks the new primary, with its own token.
    new.await_waiters("waited", 1);
    assert!(new.info("waited").contains("waiter"));
    assert!(!waiting.is_finished(), "the holder holds it still");
    assert_eq!(new.int(&["LOCK.RELEASE", "waited", "holder"]), 1);
    assert!(waiting.join().unwrap().fence() > fence.cast_unsigned());
    assert!(!watched.is_lost());
    goes_on(&guard, &mut new);

    let unknown = Sentinel::new(sentinels.addresses(), "other").unwrap();
    let locks = sentinel(unknown, Options::default().reconnect(ms(100)));
    let error = now(locks.lock("k").lock()).unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
}

/// The hold went on, with its fence.
fn goes_on(guard: &library::Guard, new: &mut Admin) {
    now(guard.renew()).unwrap();
    let key = std::str::from_utf8(guard.key()).unwrap();
    let fence = new.int(&["LOCK.CHECK", key, "owner"]);
    assert_eq!(fence.cast_unsigned(), guard.fence());
    now(guard.unlock()).unwrap();
    assert!(new.is_free(key));
}

#[test]
fn cluster_slot_that_moves_under_a_waiter_and_over_a_free_lock() {
    let servers = Cluster::start();
    let locks = cluster(servers.urls(), Options::default());
    let [mut source, mut target] = [1, 2].map(|node| servers.nodes[node].admin());
    let key = servers.key_of(1, "moves");
    source.run(&["LOCK.ACQUIRE", &key, "holder", "60000"]);
    let waiting = waiter(&locks, &key);
    source.await_waiters(&key, 1);
    servers.move_slot(&key, 1, 2);
    target.await_waiters(&key, 1);
    let start = Instant::now();
    assert_eq!(target.int(&["LOCK.RELEASE", &key, "holder"]), 1);
    now(waiting.join().unwrap().unlock()).unwrap();
    // It heard of its grant at the new node. Otherwise it would have asked after its slice.
    assert!(start.elapsed() < ms(4_000), "{:?}", start.elapsed());

    // A lock that is free is taken where the slot goes: ASK.
    let key = servers.key_of(1, "asked");
    let slot = servers.begin_to_move(&key, 1, 2);
    for _ in 0..2 {
        let guard = now(locks.lock(&key).lock()).unwrap();
        assert!(now(locks.lock(&key).try_lock()).unwrap().is_none());
        now(guard.renew()).unwrap();
        let sent_on = source.ask(&["LOCK.CHECK", &key, "t"]).unwrap_err();
        assert_eq!(sent_on.code(), Some("ASK"));
        now(guard.unlock()).unwrap();
    }
    servers.end_move(&slot, 1, 2);
    now(now(locks.lock(&key).lock()).unwrap().unlock()).unwrap();
}

#[test]
fn cluster_locks_are_spread_by_key() {
    let servers = Cluster::start();
    let locks = cluster(servers.urls(), Options::default());
    for node in 0..3 {
        let key = servers.key_of(node, "k");
        let mut admin = servers.nodes[node].admin();
        let [one, two] = ["1", "2"].map(|end| format!("{{{key}}}{end}"));
        let both = now(locks.multi_lock([&one]).and_shared([&two]).lock()).unwrap();
        assert!(!admin.is_free(&one) && !admin.is_free(&two));
        let lock = locks.multi_lock([&two, &one]);
        let waiting = thread::spawn(move || now(lock.lock()).unwrap());
        admin.await_waiters(&one, 1);
        // By its channel, where its connection is shared.
        assert_eq!(admin.info(&one).contains("channel"), LISTENS);
        now(both.unlock()).unwrap();
        now(waiting.join().unwrap().unlock()).unwrap();
        assert!(admin.is_free(&one) && admin.is_free(&two));
    }
    for key in ["{tag} k", "a}b{c d", "\r\n"] {
        let held = now(locks.lock(key).lock()).unwrap();
        assert!(now(locks.lock(key).try_lock()).unwrap().is_none());
        let waiting = waiter(&locks, key);
        thread::sleep(ms(100));
        now(held.unlock()).unwrap();
        now(waiting.join().unwrap().unlock()).unwrap();
    }
    let keys = [0, 1].map(|node| servers.key_of(node, "k"));
    let error = now(locks.multi_lock(&keys).lock()).unwrap_err();
    assert!(matches!(error, Error::CrossSlot(_)), "{error}");
    assert!(error.to_string().contains("{tag}"), "{error}");
    // One that does not wait outlasts no failover.
    let mut admin = servers.nodes[0].admin();
    admin.run(&["CONFIG", "SET", "min-replicas-to-write", "9"]);
    let start = Instant::now();
    assert!(now(locks.lock(&keys[0]).try_lock()).is_err());
    assert!(start.elapsed() < ms(15_000));
    // Nobody waits for the others while all nodes are silent.
    servers.nodes.iter().for_each(Server::freeze);
    let start = Instant::now();
    let asking = || now(locks.lock("k").lock_timeout(ms(10))).unwrap_err();
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(asking))));
    assert!(start.elapsed() < ms(20_000), "{:?}", start.elapsed());
    servers.nodes.iter().for_each(Server::thaw);
}

/// A node that is there and silent, which no connection tells.
#[test]
fn cluster_failover_of_a_silent_node() {
    let servers = Cluster::start();
    let locks = cluster(servers.urls(), Options::default());
    // Nobody has listened for the slots of the others.
    let [held, silent, unheard] = ["held", "silent", "unheard"].map(|name| servers.key_of(0, name));
    let guard = now(locks.lock(&held).with_token("owner").lock()).unwrap();
    let watched = guard.keep_alive();
    now(now(locks.lock(&silent).lock()).unwrap().unlock()).unwrap();
    let mut old = servers.nodes[0].admin();
    assert!(!old.is_free(&held) && old.int(&["WAIT", "1", "20000"]) == 1);
    servers.nodes[0].freeze();
    let taken = [&silent, &unheard].map(|key| waiter(&locks, key));
    for taken in taken {
        now(taken.join().unwrap().unlock()).unwrap();
    }
    assert!(!watched.is_lost());
    goes_on(&guard, &mut servers.nodes[3].admin());
    servers.nodes[0].thaw();
}

#[test]
fn cluster_failover_between_two_waits() {
    let servers = Cluster::start();
    let [locks, holders] = [(); 2].map(|()| cluster(servers.urls(), Options::default()));
    let keys = ["first", "second"].map(|name| servers.key_of(0, name));
    let [mut primary, mut replica] = [0, 3].map(|node| servers.nodes[node].admin());
    // There and back.
    for turn in 0..3 {
        for key in &keys {
            waits_for((&locks, &holders), &mut primary, key);
        }
        if turn < 2 {
            fail_over(&mut primary, &mut replica);
            std::mem::swap(&mut primary, &mut replica);
        }
    }
}

/// Lets the other one of two nodes take over, with no write lost.
fn fail_over(old: &mut Admin, new: &mut Admin) {
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
    let new = Server::start_with(&["--replicaof", "127.0.0.1", &old.port.to_string()]);
    let proxy = Proxy::to(old.port);
    let [one, other, holders] = [(); 3].map(|()| open(proxy.url(), Options::default()));
    let (mut replica, mut primary) = (old.admin(), new.admin());
    for locks in [&one, &other] {
        waits_for((locks, &holders), &mut replica, "k");
    }
    let to = ["FAILOVER", "TO", "127.0.0.1", &new.port.to_string()];
    eventually("a failover", || replica.ask(&to).is_ok());
    proxy.faults().server = new.port;
    eventually("there is a new primary", || {
        has_role(&mut primary, "master") && has_role(&mut replica, "slave")
    });
    // The connection that listens stays.
    replica.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    for locks in [&one, &other, &one, &other] {
        waits_for((locks, &holders), &mut primary, "k");
    }
}

/// Ends the connections over which locks were asked for, and none of the sentinel's own.
fn cut(primary: &mut Admin) {
    let list: String = redis::from_redis_value(primary.run(&["CLIENT", "LIST"])).unwrap();
    for client in list.lines().filter(|client| client.contains(" cmd=lock.")) {
        let id = client.split(['=', ' ']).nth(1).unwrap();
        primary.run(&["CLIENT", "KILL", "ID", id]);
    }
}

/// It accepts connections, and is asked before one that answers.
#[test]
fn silent_sentinel_keeps_nobody_from_a_lock_or_a_renewal() {
    let sentinels = Sentinels::start();
    // Its connections are made by the system, and nobody reads what comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("redis://{}", silent.local_addr().unwrap());
    let [_, answers] = sentinels.addresses();
    let named = Sentinel::new([silent_url, answers], "locks").unwrap();
    let locks = sentinel(named, Options::default().ttl(ms(6_000)));
    let mut primary = sentinels.servers[0].admin();
    let begin = Instant::now();
    // At the same moment, as one of them finds the primary for all.
    let held = ["one", "other"].map(|key| waiter(&locks, key));
    let held = held.map(|held| held.join().unwrap());
    // Each of the two has a second, but for the first round.
    assert!(begin.elapsed() < ms(1_000), "{:?}", begin.elapsed());
    let kept = held.each_ref().map(library::Guard::keep_alive);
    let ends = held.each_ref().map(library::Guard::valid_until);
    cut(&mut primary);
    eventually("both are renewed by another connection", || {
        let mut pairs = held.iter().zip(ends);
        pairs.all(|(held, end)| held.valid_until() > end)
    });
    assert!(!kept.iter().any(library::KeepAlive::is_lost));
    cut(&mut primary);
    let begin = Instant::now();
    now(now(locks.lock("k").lock()).unwrap().unlock()).unwrap();
    // An answer that does not come takes 2 s. The one that has named the primary is asked first.
    assert!(begin.elapsed() < ms(2_000), "{:?}", begin.elapsed());
    waits_for((&locks, &locks), &mut primary, "waited");
}
