//! The blocking client, on a real server.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{BOUND, Proxy, Server, counter, eventually};
use redis_lock_client::sync::LockClient;
use redis_lock_client::{Error, Mode, Options};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn locks(server: &Server) -> LockClient {
    LockClient::open(server.url(), Options::default()).unwrap()
}

#[test]
fn a_lock_excludes_and_is_passed_on() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let lock = locks.lock("a key");
    assert_eq!(lock.key(), b"a key");
    let first = lock.lock().unwrap();
    assert_eq!(
        (first.key(), first.mode()),
        (&b"a key"[..], Mode::Exclusive)
    );
    assert!(!first.is_lost() && first.valid_until() > Instant::now() + ms(20_000));
    assert!(lock.try_lock().unwrap().is_none());
    assert!(lock.lock_timeout(ms(30)).unwrap().is_none());
    assert_eq!(admin.waiters("a key"), 0);

    let (fence, token) = (first.fence(), first.token().to_vec());
    let waiting = thread::spawn({
        let lock = lock.clone();
        move || lock.lock().unwrap()
    });
    admin.await_waiters("a key", 1);
    first.unlock().unwrap();
    let second = waiting.join().unwrap();
    assert!(second.fence() > fence && second.token() != token);
    drop(second);
    assert!(admin.is_free("a key"));
}

#[test]
fn keys_and_tokens_are_any_bytes() {
    let server = Server::start();
    let lock = locks(&server)
        .lock(b"\0 a\r\n\xff")
        .with_token(b"t\0\r\n \xfe");
    let guard = lock.try_lock().unwrap().unwrap();
    assert_eq!(guard.token(), b"t\0\r\n \xfe");
    guard.renew().unwrap();
    // The same token is the same owner.
    let again = lock.try_lock().unwrap().unwrap();
    assert_eq!(again.fence(), guard.fence());
    guard.unlock().unwrap();
    assert!(matches!(again.unlock(), Err(Error::NotHeld)));
}

#[test]
fn a_hold_is_converted_in_both_directions() {
    let server = Server::start();
    let (pages, mut admin) = (locks(&server).rwlock("page"), server.admin());
    let mut guard = pages.write().unwrap();
    let fence = guard.fence();
    guard.downgrade().unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Shared, fence));
    let other = pages.try_read().unwrap().unwrap();
    assert!(!guard.try_upgrade().unwrap());
    assert!(!guard.upgrade_timeout(ms(30)).unwrap());
    assert_eq!(guard.mode(), Mode::Shared);
    assert_eq!(admin.waiters("page"), 0);

    let upgrading = thread::spawn(move || {
        guard.upgrade().unwrap();
        guard
    });
    admin.await_waiters("page", 1);
    let mut second = other;
    assert!(matches!(second.try_upgrade(), Err(Error::Deadlock(_))));
    second.unlock().unwrap();
    let mut guard = upgrading.join().unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Exclusive, fence));
    guard.upgrade().unwrap();
    assert!(pages.try_read().unwrap().is_none());
    guard.unlock().unwrap();
    assert!(admin.is_free("page"));
}

#[test]
fn a_lost_hold_is_told() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let lock = locks.lock("k");
    let guard = lock.lock().unwrap();
    admin.run(&["DEL", "k"]);
    assert!(matches!(guard.renew(), Err(Error::NotHeld)));
    assert!(guard.is_lost());
    assert!(matches!(guard.unlock(), Err(Error::NotHeld)));

    let short = lock.with_ttl(ms(50));
    let guard = short.lock().unwrap();
    // The guard's time is over before the server's.
    eventually("the time of the hold passes", || admin.is_free("k"));
    assert!(guard.is_lost());
    assert!(matches!(guard.unlock(), Err(Error::NotHeld)));

    let mut pages = locks.rwlock("k").write().unwrap();
    admin.run(&["DEL", "k"]);
    admin.run(&["LOCK.ACQUIRE", "k", "another", "10000"]);
    assert!(matches!(pages.downgrade(), Err(Error::NotHeld)));
    assert!(pages.is_lost());
}

#[test]
fn extend_sets_the_deadline() {
    let server = Server::start();
    let mut admin = server.admin();
    let guard = locks(&server).lock("k").lock().unwrap();
    guard.extend(ms(500_000)).unwrap();
    assert!(guard.valid_until() > Instant::now() + ms(400_000));
    let redis::Value::Int(left) = admin.run(&["PTTL", "k"]) else {
        panic!()
    };
    assert!(left > 400_000);
    guard.extend(ms(60_000)).unwrap();
    assert!(guard.valid_until() < Instant::now() + ms(60_001));
}

#[test]
fn keep_alive_renews_and_says_when_it_is_lost() {
    let server = Server::start();
    let (told, lost) = mpsc::channel();
    let options = Options::default()
        .ttl(ms(600))
        .on_lost(move |lost| told.send(lost.clone()).unwrap());
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    let guard = locks.lock("k").lock().unwrap();
    let keep_alive = guard.keep_alive();
    let begin = guard.valid_until();
    eventually("three renewals", || guard.valid_until() > begin + ms(600));
    assert!(!keep_alive.is_lost());
    admin.run(&["DEL", "k"]);
    assert!(keep_alive.wait_lost(BOUND));
    assert!(keep_alive.is_lost() && guard.is_lost());
    let lost = lost.recv_timeout(BOUND).unwrap();
    assert_eq!(
        (lost.key.as_slice(), lost.fence),
        (&b"k"[..], guard.fence())
    );
}

#[test]
fn keep_alive_says_lost_when_the_server_is_silent() {
    let server = Server::start();
    let (told, lost) = mpsc::channel();
    let options = Options::default()
        .ttl(ms(600))
        .on_lost(move |_| told.send(Instant::now()).unwrap());
    let locks = LockClient::open(server.url(), options).unwrap();
    let guard = locks.lock("k").lock().unwrap();
    let _keep_alive = guard.keep_alive();
    server.freeze();
    let at = lost.recv_timeout(BOUND);
    let end = guard.valid_until();
    server.thaw();
    assert!(at.unwrap() < end + ms(2_000));
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
    let mut admin = server.admin();
    proxy.lose_replies(1, "LOCK.ACQUIRE");
    let guard = locks.lock("k").lock().unwrap();
    assert_eq!(proxy.losses_left(), 0);
    assert!(admin.info("k").contains(&guard.fence().to_string()));
    proxy.lose_replies(1, "LOCK.RENEW");
    guard.renew().unwrap();
    assert_eq!(proxy.losses_left(), 0);
    proxy.lose_replies(1, "LOCK.RELEASE");
    guard.unlock().unwrap();
    assert_eq!(proxy.losses_left(), 0);
    assert!(admin.is_free("k"));
}

#[test]
fn slices_are_one_wait() {
    let server = Server::start();
    let options = Options::default().slice(ms(20));
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let start = Instant::now();
    assert!(locks.lock("k").lock_timeout(ms(150)).unwrap().is_none());
    assert!(start.elapsed() >= ms(150) && start.elapsed() < ms(2_000));
    assert_eq!(admin.waiters("k"), 0);
    let waiting = thread::spawn(move || locks.lock("k").lock());
    thread::sleep(ms(100));
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    waiting.join().unwrap().unwrap().unlock().unwrap();
}

#[test]
fn giving_up_leaves_no_hold_behind() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let options = Options::default().reconnect(ms(300));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    // The grant is made, and neither it nor the answers to the next tries arrive.
    let trying = thread::spawn({
        let lock = locks.lock("k");
        proxy.lose_replies(1_000, "LOCK.ACQUIRE");
        move || lock.try_lock()
    });
    assert!(matches!(trying.join().unwrap(), Err(Error::Redis(_))));
    assert!(proxy.losses_left() < 1_000);
    proxy.lose_replies(0, "LOCK.ACQUIRE");
    assert!(admin.is_free("k"));

    // A wait that is cut for longer than the client is willing to ask again.
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let waiting = thread::spawn(move || locks.lock("k").lock().map(drop));
    admin.await_waiters("k", 1);
    proxy.close();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Redis(_))));
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    eventually("the lock is free", || admin.is_free("k"));
}

#[test]
fn a_wait_that_the_server_sees_end_late_leaves_no_hold() {
    // Both requests count while the server does not know that the first is gone.
    for (limit, is_granted) in [("1", false), ("2", true)] {
        let server = Server::start_with(&["max-waiters-per-key", limit]);
        let proxy = Proxy::to(server.port);
        proxy.linger(ms(600));
        let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
        let mut admin = server.admin();
        admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
        let waiting = thread::spawn(move || locks.lock("k").lock().map(drop));
        admin.await_waiters("k", 1);
        proxy.cut_clients();
        thread::sleep(ms(200));
        // The request that was cut may be granted: the server still takes its client for alive.
        admin.run(&["LOCK.RELEASE", "k", "holder"]);
        eventually("the lock is free", || admin.is_free("k"));
        let waited = waiting.join().unwrap();
        assert_eq!(waited.is_ok(), is_granted, "{waited:?}");
    }
}

#[test]
fn errors_are_told_apart() {
    let server = Server::start();
    let mut admin = server.admin();
    let token = locks(&server).lock("k").with_token("").try_lock();
    assert!(matches!(token, Err(Error::Redis(_))), "{token:?}");
    drop(server);
    let gone = LockClient::open(format!("redis://127.0.0.1:{}", common::free_port()), {
        Options::default().reconnect(ms(100))
    });
    let start = Instant::now();
    assert!(matches!(
        gone.unwrap().lock("k").lock(),
        Err(Error::Redis(_))
    ));
    assert!(start.elapsed() < ms(2_000));
    assert!(admin.ask(&["PING"]).is_err());
}

#[test]
fn a_fallback_is_said_once() {
    let server = Server::start();
    let (said, count) = counter();
    let options = Options::default().slice(ms(10)).on_fallback(count);
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    for _ in 0..2 {
        assert!(locks.lock("k").lock_timeout(ms(40)).unwrap().is_none());
    }
    assert_eq!(said.load(SeqCst), usize::from(!admin.has_places()));
}

#[test]
fn threads_take_turns() {
    let server = Server::start();
    let locks = locks(&server);
    let (inside, fences) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Mutex::new(Vec::new())),
    );
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let guard = locks.lock("k").lock().unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    fences.lock().unwrap().push(guard.fence());
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), 200);
    assert!(fences.is_sorted());
}

/// Eight clients that block for ever take turns, and hold so long that all of them outlast a slice.
#[test]
fn slices_keep_the_place_beside_raw_clients() {
    let Some(server) = Server::start_with_places("slices_keep_the_place_beside_raw_clients") else {
        return;
    };
    let options = Options::default().slice(ms(100));
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    let grants = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicUsize::new(0));
    let raw: Vec<_> = (0..8)
        .map(|client| {
            let (mut admin, grants, over) = (server.admin(), grants.clone(), over.clone());
            thread::spawn(move || {
                let token = client.to_string();
                while over.load(SeqCst) == 0 {
                    admin.run(&["LOCK.ACQUIRE", "k", &token, "10000", "BLOCK", "0"]);
                    grants.fetch_add(1, SeqCst);
                    thread::sleep(ms(20));
                    admin.run(&["LOCK.RELEASE", "k", &token]);
                }
            })
        })
        .collect();
    admin.await_waiters("k", 7);
    let before = grants.load(SeqCst);
    let guard = locks.lock("k").lock().unwrap();
    let others = grants.load(SeqCst) - before;
    over.store(1, SeqCst);
    guard.unlock().unwrap();
    for raw in raw {
        raw.join().unwrap();
    }
    assert!(others <= 10, "{others} others were granted before");
}

#[test]
fn a_dead_waiter_costs_its_grace_at_most() {
    let Some(server) = Server::start_with_places("a_dead_waiter_costs_its_grace_at_most") else {
        return;
    };
    let proxy = Proxy::to(server.port);
    let options = Options::default().grace(ms(500)).reconnect(ms(50));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let dead = thread::spawn(move || locks.lock("k").lock().map(drop));
    admin.await_waiters("k", 1);
    let next = thread::spawn({
        let mut admin = server.admin();
        move || {
            admin.run(&["LOCK.ACQUIRE", "k", "next", "10000", "BLOCK", "10000"]);
            Instant::now()
        }
    });
    admin.await_waiters("k", 2);
    let died = Instant::now();
    proxy.close();
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    assert!(next.join().unwrap() < died + ms(1_500));
    assert!(dead.join().unwrap().is_err());
}
