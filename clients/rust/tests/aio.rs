//! The asynchronous client, on a real server, and on one that only speaks NOTIFY.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Admin, BOUND, Fake, Proxy, Server, counter};
use redis_lock_client::aio::LockClient;
use redis_lock_client::{Error, Mode, Options};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn locks(server: &Server) -> LockClient {
    LockClient::open(server.url(), Options::default()).unwrap()
}

/// Waits for a condition, within a bound.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "never happened: {what}");
        sleep(ms(2)).await;
    }
}

async fn waiters(admin: &mut Admin, key: &str, count: usize) {
    eventually(&format!("{count} wait for {key}"), || {
        admin.waiters(key) == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_releases() {
    let server = Server::start();
    let mut admin = server.admin();
    let guard = locks(&server).lock("a key").lock().await.unwrap();
    assert_eq!(
        (guard.key(), guard.mode()),
        (&b"a key"[..], Mode::Exclusive)
    );
    drop(guard);
    eventually("the dropped guard releases", || admin.is_free("a key")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_holds_are_converted() {
    let server = Server::start();
    let (pages, mut admin) = (locks(&server).rwlock("page"), server.admin());
    let mut guard = pages.write().await.unwrap();
    let fence = guard.fence();
    assert!(pages.try_read().await.unwrap().is_none());
    guard.downgrade().await.unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Shared, fence));
    let mut other = pages.read().await.unwrap();
    assert!(pages.write_timeout(ms(20)).await.unwrap().is_none());
    assert!(!guard.try_upgrade().await.unwrap());
    assert!(!guard.upgrade_timeout(ms(120)).await.unwrap());
    assert_eq!((guard.mode(), admin.waiters("page")), (Mode::Shared, 0));

    let upgrading = tokio::spawn(async move {
        guard.upgrade().await.unwrap();
        guard
    });
    waiters(&mut admin, "page", 1).await;
    assert!(matches!(other.try_upgrade().await, Err(Error::Deadlock(_))));
    other.unlock().await.unwrap();
    let guard = upgrading.await.unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Exclusive, fence));
    assert!(pages.try_read().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    assert!(admin.is_free("page"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_upgrade_leaves_its_share() {
    let server = Server::start();
    let (pages, mut admin) = (locks(&server).rwlock("page"), server.admin());
    let (mut guard, other) = (pages.read().await.unwrap(), pages.read().await.unwrap());
    let cancelled = timeout(ms(150), guard.upgrade()).await;
    assert!(cancelled.is_err());
    waiters(&mut admin, "page", 0).await;
    assert_eq!(guard.mode(), Mode::Shared);
    guard.renew().await.unwrap();
    assert!(admin.info("page").contains("shared"));
    other.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_upgrade_does_not_undo_the_next() {
    let server = Server::start();
    let (pages, mut admin) = (locks(&server).rwlock("page"), server.admin());
    for _ in 0..5 {
        let (mut guard, other) = (pages.read().await.unwrap(), pages.read().await.unwrap());
        let token = String::from_utf8(other.token().to_vec()).unwrap();
        assert!(timeout(ms(80), guard.upgrade()).await.is_err());
        admin.run(&["LOCK.RELEASE", "page", &token]);
        guard.upgrade().await.unwrap();
        for _ in 0..20 {
            assert!(admin.info("page").contains("exclusive"));
            sleep(ms(2)).await;
        }
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_the_server_sees_end_late_leaves_no_hold() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    proxy.linger(ms(600));
    let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let waiting = tokio::spawn(async move { locks.lock("k").lock().await.map(drop) });
    waiters(&mut admin, "k", 1).await;
    waiting.abort();
    assert!(waiting.await.is_err());
    sleep(ms(200)).await;
    // The one that gave up is granted, because the server does not know yet that it is gone.
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    eventually("the lock is free", || admin.is_free("k")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_hold_is_told() {
    let server = Server::start();
    let (lost, count) = counter();
    let options = Options::default().ttl(ms(600)).on_lost(count);
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    let guard = locks.lock("k").lock().await.unwrap();
    let keep_alive = guard.keep_alive();
    let begin = guard.valid_until();
    eventually("three renewals", || guard.valid_until() > begin + ms(600)).await;
    assert!(timeout(ms(10), guard.lost()).await.is_err());
    admin.run(&["DEL", "k"]);
    timeout(BOUND, guard.lost()).await.unwrap();
    assert!(keep_alive.is_lost() && guard.is_lost());
    eventually("on_lost is called", || lost.load(SeqCst) == 1).await;
    assert!(matches!(guard.renew().await, Err(Error::NotHeld)));
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld)));

    // Without a watchdog the time of the hold ends it.
    let guard = locks.lock("k").with_ttl(ms(50)).lock().await.unwrap();
    timeout(BOUND, guard.lost()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_alive_says_lost_when_the_server_is_silent() {
    let server = Server::start();
    let options = Options::default().ttl(ms(600));
    let locks = LockClient::open(server.url(), options).unwrap();
    let guard = locks.lock("k").lock().await.unwrap();
    let keep_alive = guard.keep_alive();
    server.freeze();
    let lost = timeout(BOUND, keep_alive.lost()).await;
    let late = Instant::now().saturating_duration_since(guard.valid_until());
    server.thaw();
    lost.unwrap();
    assert!(late < ms(1_000), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_asked_for_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
    let mut admin = server.admin();
    proxy.lose_replies(1, "LOCK.ACQUIRE");
    let guard = locks.lock("k").lock().await.unwrap();
    assert!(admin.info("k").contains(&guard.fence().to_string()));
    proxy.lose_replies(1, "LOCK.RENEW");
    guard.renew().await.unwrap();
    proxy.lose_replies(1, "LOCK.RELEASE");
    guard.unlock().await.unwrap();
    assert_eq!(proxy.losses_left(), 0);
    assert!(admin.is_free("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_acquire_leaves_nothing_behind() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let lock = locks.lock("k");
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    waiters(&mut admin, "k", 1).await;
    waiting.abort();
    waiters(&mut admin, "k", 0).await;
    // Cancelled at the moment of the grant.
    for _ in 0..20 {
        let lock = locks.lock("k");
        let waiting = tokio::spawn(async move { lock.lock().await.map(std::mem::forget) });
        waiters(&mut admin, "k", 1).await;
        admin.run(&["LOCK.RELEASE", "k", "holder"]);
        waiting.abort();
        if waiting.await.is_ok() {
            admin.run(&["DEL", "k"]);
        }
        eventually("the lock is free", || admin.is_free("k")).await;
        admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_leaves_no_hold_behind() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let options = Options::default().reconnect(ms(200));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    proxy.lose_replies(1_000, "LOCK.ACQUIRE");
    let tried = locks.lock("k").try_lock().await;
    assert!(matches!(tried, Err(Error::Redis(_))), "{tried:?}");
    assert!(proxy.losses_left() < 1_000);
    assert!(admin.is_free("k"));
}

/// More tasks than connections that may wait.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_take_turns() {
    let server = Server::start();
    let options = Options::default().max_waiting_connections(2);
    let locks = LockClient::open(server.url(), options).unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let fences = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (locks, inside, fences) = (locks.clone(), inside.clone(), fences.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = locks.lock("k").lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                fences.lock().unwrap().push(guard.fence());
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                guard.unlock().await.unwrap();
            }
        });
    }
    timeout(BOUND, tasks.join_all()).await.unwrap();
    let fences = fences.lock().unwrap();
    assert_eq!(fences.len(), 80);
    assert!(fences.is_sorted());
    // The shared one, and those that waited.
    assert!(server.admin().clients("lock.") <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_own_connection_serves() {
    let server = Server::start();
    let client = server.client();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "200"]);
    let manager = client.get_connection_manager().await.unwrap();
    let locks = LockClient::with_connection(client.clone(), manager, Options::default()).unwrap();
    let guard = locks.lock("k").lock().await.unwrap();
    guard.unlock().await.unwrap();

    admin.run(&["LOCK.ACQUIRE", "k", "holder", "200"]);
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let polling = LockClient::polling(connection, Options::default()).unwrap();
    assert!(
        polling
            .lock("k")
            .lock_timeout(ms(20))
            .await
            .unwrap()
            .is_none()
    );
    let guard = polling
        .lock("k")
        .lock_timeout(BOUND)
        .await
        .unwrap()
        .unwrap();
    guard.unlock().await.unwrap();
    assert!(admin.is_free("k"));
}

#[cfg(feature = "cluster-async")]
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_locked() {
    let server = Server::start_cluster();
    let locks = LockClient::cluster([server.url()], Options::default()).unwrap();
    let mut admin = server.admin();
    for key in ["k", "{tag} k", "a}b{c d", "\r\n"] {
        admin.run(&["LOCK.ACQUIRE", key, "holder", "60000"]);
        let lock = locks.lock(key);
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.lock_timeout(ms(20)).await.unwrap().is_none());
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        if admin.has_places() {
            waiters(&mut admin, key, 1).await;
        }
        admin.run(&["LOCK.RELEASE", key, "holder"]);
        let guard = timeout(BOUND, waiting).await.unwrap().unwrap();
        guard.renew().await.unwrap();
        guard.unlock().await.unwrap();
        assert!(admin.is_free(key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_is_said_once() {
    let server = Server::start();
    let (said, count) = counter();
    let options = Options::default().on_fallback(count);
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    for _ in 0..2 {
        assert!(
            locks
                .lock("k")
                .lock_timeout(ms(40))
                .await
                .unwrap()
                .is_none()
        );
    }
    assert_eq!(said.load(SeqCst), usize::from(!admin.has_places()));
}

#[test]
fn a_client_needs_a_runtime() {
    let made = LockClient::open("redis://127.0.0.1:1", Options::default());
    assert!(matches!(made, Err(Error::NoRuntime)));
}

// The protocol of NOTIFY, on a server that speaks nothing else.

fn waiting(
    fake: &Fake,
    options: Options,
) -> tokio::task::JoinHandle<redis_lock_client::Result<u64>> {
    let locks = LockClient::open(fake.url(), options).unwrap();
    tokio::spawn(async move {
        let guard = locks.lock("a key").lock().await?;
        let fence = guard.fence();
        guard.unlock().await?;
        Ok(fence)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_grants_by_message() {
    let fake = Fake::start();
    let waiting = waiting(&fake, Options::default());
    eventually("it is queued", || fake.queued() == 1).await;
    let fence = fake.grant();
    assert_eq!(waiting.await.unwrap().unwrap(), fence);
    let log = fake.log();
    assert!(
        log[1].contains("NOTIFY 0 redis-lock:") && log[1].ends_with("KEEP 5000"),
        "{log:?}"
    );
    assert_eq!((log.len(), fake.held()), (3, 0), "{log:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_asks_again_after_a_lost_subscription() {
    let fake = Fake::start();
    let waiting = waiting(&fake, Options::default().slice(ms(3_600_000)));
    eventually("it is queued", || fake.queued() == 1).await;
    fake.cut_subscriptions();
    eventually("it asked again", || fake.count("NOTIFY") == 2).await;
    // The message is published before anybody hears it again.
    fake.cut_subscriptions();
    let fence = fake.grant();
    assert_eq!(
        timeout(BOUND, waiting).await.unwrap().unwrap().unwrap(),
        fence
    );
    let log = fake.log();
    let token = |line: &String| line.split(' ').nth(3).unwrap().to_owned();
    assert!(
        log.iter().all(|line| token(line) == token(&log[0])),
        "{log:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_asks_again_when_it_is_told_to() {
    let fake = Fake::start();
    let waiting = waiting(&fake, Options::default());
    for (asked, event) in ["tryagain", "wrongtype", "timeout", "later-word"]
        .iter()
        .enumerate()
    {
        eventually("it asked", || {
            fake.count("NOTIFY") == asked + 1 && fake.queued() == 1
        })
        .await;
        fake.end(event);
    }
    eventually("it asked", || fake.queued() == 1).await;
    fake.end("deadlock");
    assert!(matches!(waiting.await.unwrap(), Err(Error::Deadlock(_))));
    assert_eq!(fake.count("LOCK.RELEASE"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_asks_again_after_a_slice() {
    let fake = Fake::start();
    let waiting = waiting(&fake, Options::default().slice(ms(30)));
    eventually("it asked again", || fake.count("NOTIFY") >= 3).await;
    fake.grant();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_gives_up_its_place() {
    let fake = Fake::start();
    let locks = LockClient::open(fake.url(), Options::default()).unwrap();
    let lock = locks.lock("k");
    // On a busy machine it takes a while to subscribe and to be queued.
    assert!(lock.lock_timeout(ms(1_000)).await.unwrap().is_none());
    assert_eq!((fake.queued(), fake.count("LOCK.RELEASE")), (0, 1));
    let cancelled = tokio::spawn(async move { lock.lock().await.map(drop) });
    eventually("it is queued", || fake.queued() == 1).await;
    cancelled.abort();
    eventually("it is released", || fake.count("LOCK.RELEASE") == 2).await;
    assert_eq!(fake.queued(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn notify_begins_a_late_lease_anew() {
    let fake = Fake::start();
    let locks = LockClient::open(fake.url(), Options::default().ttl(ms(500))).unwrap();
    let waiting = tokio::spawn(async move { locks.lock("k").lock().await });
    eventually("it is queued", || fake.queued() == 1).await;
    sleep(ms(100)).await;
    fake.grant();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(fake.count("LOCK.RENEW"), 1);
    assert!(guard.valid_until() > Instant::now() + ms(300));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_channel_lets_connections_wait() {
    let fake = Fake::start();
    fake.refuse_subscriptions();
    let said = Arc::new(Mutex::new(Vec::new()));
    let options = Options::default().reconnect(ms(300)).on_fallback({
        let said = said.clone();
        move |text| said.lock().unwrap().push(text.to_owned())
    });
    let waiting = waiting(&fake, options);
    eventually("a connection waits", || fake.count("BLOCK") > 0).await;
    waiting.abort();
    let said = said.lock().unwrap();
    assert!(
        said.len() == 1 && said[0].contains("no permissions"),
        "{said:?}"
    );
}

// With KEEP and NOTIFY in the server.

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_wait_over_two_connections() {
    let Some(server) = Server::start_with_places("many_tasks_wait_over_two_connections") else {
        return;
    };
    let (locks, mut admin) = (locks(&server), server.admin());
    let before = admin.clients("");
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let mut tasks = JoinSet::new();
    for _ in 0..10_000 {
        let lock = locks.lock("k");
        tasks.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    }
    let end = Instant::now() + ms(60_000);
    while admin.waiters("k") < 10_000 {
        assert!(Instant::now() < end, "not all tasks wait");
        sleep(ms(100)).await;
    }
    assert_eq!(admin.clients("") - before, 2);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(ms(120_000), tasks.join_all()).await.unwrap();
    assert!(admin.is_free("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_subscription_loses_no_place() {
    let Some(server) = Server::start_with_places("a_lost_subscription_loses_no_place") else {
        return;
    };
    let (locks, mut admin) = (locks(&server), server.admin());
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..5 {
        let (lock, order) = (locks.lock("k"), order.clone());
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        });
        waiters(&mut admin, "k", number + 1).await;
    }
    admin.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(BOUND, tasks.join_all()).await.unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_up_releases_the_place() {
    let Some(server) = Server::start_with_places("giving_up_releases_the_place") else {
        return;
    };
    let options = Options::default().grace(ms(60_000));
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let lock = locks.lock("k");
    assert!(lock.lock_timeout(ms(50)).await.unwrap().is_none());
    assert_eq!(admin.waiters("k"), 0);
    let cancelled = tokio::spawn(async move { lock.lock().await.map(drop) });
    waiters(&mut admin, "k", 1).await;
    cancelled.abort();
    waiters(&mut admin, "k", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_channel_keeps_its_place() {
    let Some(server) = Server::start_with_places("a_user_without_the_channel_keeps_its_place")
    else {
        return;
    };
    let mut admin = server.admin();
    let rules = "on >secret ~* resetchannels &other:* +@all";
    let words: Vec<&str> = ["ACL", "SETUSER", "limited"]
        .into_iter()
        .chain(rules.split(' '))
        .collect();
    admin.run(&words);
    let (said, count) = counter();
    let options = Options::default().slice(ms(50)).on_fallback(count);
    let url = server.url().replace("://", "://limited:secret@");
    let locks = LockClient::open(url, options).unwrap();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let waiting = tokio::spawn(async move { locks.lock("k").lock().await.unwrap().unlock().await });
    waiters(&mut admin, "k", 1).await;
    let behind = tokio::task::spawn_blocking({
        let mut admin = server.admin();
        move || admin.run(&["LOCK.ACQUIRE", "k", "behind", "10000", "BLOCK", "10000"])
    });
    waiters(&mut admin, "k", 2).await;
    // After some slices it is still the first one.
    sleep(ms(300)).await;
    let info = admin.info("k");
    assert!(!info.contains("channel"), "{info}");
    assert_eq!(said.load(SeqCst), 1);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(BOUND, waiting).await.unwrap().unwrap().unwrap();
    behind.await.unwrap();
}

/// Tasks that listen and connections that block are served in the order in which they came.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_raw_clients_are_served_in_order() {
    let Some(server) = Server::start_with_places("tasks_and_raw_clients_are_served_in_order")
    else {
        return;
    };
    let locks = LockClient::open(server.url(), Options::default().slice(ms(100))).unwrap();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let order = order.clone();
        if number % 2 == 0 {
            let lock = locks.lock("k");
            tasks.spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().unwrap().push(number);
                guard.unlock().await.unwrap();
            });
        } else {
            let mut raw = server.admin();
            tasks.spawn_blocking(move || {
                let token = number.to_string();
                raw.run(&["LOCK.ACQUIRE", "k", &token, "10000", "BLOCK", "0"]);
                order.lock().unwrap().push(number);
                raw.run(&["LOCK.RELEASE", "k", &token]);
            });
        }
        waiters(&mut admin, "k", number + 1).await;
    }
    // Every task asks again a few times meanwhile.
    sleep(ms(350)).await;
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(BOUND, tasks.join_all()).await.unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}
