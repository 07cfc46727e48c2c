//! Semaphores, several locks as one, guarded commands, jobs that run once, and linger: the
//! asynchronous client, on a real server.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Admin, BOUND, Proxy, Server, without_at_least};
use redis_lock_client::aio::LockClient;
use redis_lock_client::{Error, Options};
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
async fn there_are_never_more_holders_than_permits() {
    let server = Server::start();
    let clients = [locks(&server), locks(&server), locks(&server)];
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let permits = clients[number % 3].semaphore("k", 4);
        let (inside, most) = (inside.clone(), most.clone());
        tasks.spawn(async move {
            for _ in 0..8 {
                let permit = permits.acquire().await.unwrap();
                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                sleep(ms(40)).await;
                inside.fetch_sub(1, SeqCst);
                permit.unlock().await.unwrap();
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(most.load(SeqCst), 4);
    assert!(server.admin().is_free("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_leaves_nothing_behind() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    for _ in 0..20 {
        let held = locks.semaphore("a", 1).acquire().await.unwrap();
        let (permits, both) = (locks.semaphore("a", 1), locks.multi_lock(["a", "b"]));
        let permit = tokio::spawn(async move { permits.acquire().await.map(drop) });
        waiters(&mut admin, "a", 1).await;
        let several = tokio::spawn(async move { both.lock().await.map(drop) });
        waiters(&mut admin, "a", 2).await;
        assert_eq!(admin.waiters("b"), 1);
        // At the moment of the grant.
        let released = tokio::spawn(async move { held.unlock().await });
        permit.abort();
        several.abort();
        released.await.unwrap().unwrap();
        let _ = (permit.await, several.await);
        eventually("both are free", || admin.is_free("a") && admin.is_free("b")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cross_never_block_one_another() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..9 {
        let (locks, inside) = (locks.clone(), inside.clone());
        tasks.spawn(async move {
            for _ in 0..30 {
                let guard = match number % 3 {
                    0 => locks.multi_lock(["a", "b"]).lock().await,
                    1 => locks.multi_lock(["b", "a"]).lock().await,
                    _ => locks.lock("b").lock().await,
                };
                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                inside.fetch_sub(1, SeqCst);
                guard.unwrap().unlock().await.unwrap();
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert!(admin.is_free("a") && admin.is_free("b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_nobody_saw_and_that_ended_in_part_is_asked_for_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
    let mut admin = server.admin();
    proxy.lose_replies(1_000, "LOCK.MACQUIRE");
    let asking = tokio::spawn(async move { locks.multi_lock(["a", "b"]).lock().await.unwrap() });
    eventually("it is granted", || !admin.is_free("b")).await;
    admin.run(&["DEL", "b"]);
    eventually("it asks again", || proxy.losses_left() < 998).await;
    proxy.lose_replies(0, "");
    let guard = asking.await.unwrap();
    assert!(guard.check().await.unwrap());
    guard.unlock().await.unwrap();
    assert!(admin.is_free("a") && admin.is_free("b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cut_off_has_run() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let (minute, thirty) = (ms(60_000), ms(30_000));
    let endless = locks.run_once("k", minute, thirty, async |_| sleep(minute).await);
    assert!(timeout(ms(300), endless).await.is_err());
    eventually("it is released", || admin.int(&["PTTL", "k"]) <= 30_000).await;
    assert!(admin.int(&["PTTL", "k"]) > 15_000);

    let locks = LockClient::open(without_at_least(), Options::default()).unwrap();
    let refused = locks.run_once("k", minute, thirty, async |_| unreachable!());
    assert!(matches!(refused.await, Err(Error::Unsupported(_, _))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_lingers_after_its_connection_only_as_long_as_it_may() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let options = Options::default().linger(ms(3_000));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    // One that waited is bound as well.
    let held = locks.lock("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.lock("a");
        async move { lock.lock().await.unwrap() }
    });
    waiters(&mut admin, "a", 1).await;
    held.unlock().await.unwrap();
    let guards = [
        waiting.await.unwrap(),
        locks.multi_lock(["b", "c"]).lock().await.unwrap(),
    ];
    proxy.cut();
    for (guard, key) in guards.iter().zip(["a", "c"]) {
        eventually("its end comes forward", || {
            admin.int(&["PTTL", key]) <= 3_000
        })
        .await;
        guard.renew().await.unwrap();
        assert!(admin.int(&["PTTL", key]) > 20_000);
    }
    // A renewal has bound them to the new connection. This is the end of the process.
    proxy.close();
    let begin = Instant::now();
    for key in ["a", "b", "c"] {
        eventually("it is free", || admin.is_free(key)).await;
    }
    assert!(begin.elapsed() < ms(15_000), "{:?}", begin.elapsed());
    std::mem::forget(guards);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_by_keep_alive_binds_a_hold_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let options = Options::default().ttl(ms(12_000)).linger(ms(6_500));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    let guard = locks.lock("k").lock().await.unwrap();
    let keep_alive = guard.keep_alive();
    proxy.cut();
    eventually("its end comes forward", || {
        admin.int(&["PTTL", "k"]) <= 6_500
    })
    .await;
    let begin = guard.valid_until();
    eventually("it is renewed", || guard.valid_until() > begin).await;
    drop(keep_alive);
    assert!(admin.int(&["PTTL", "k"]) > 10_000);
    proxy.cut();
    let cut = Instant::now();
    eventually("its end comes forward again", || {
        admin.int(&["PTTL", "k"]) <= 6_500
    })
    .await;
    // Without a cut that takes 5 s at least.
    assert!(cut.elapsed() < ms(4_000), "{:?}", cut.elapsed());
    assert!(!guard.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_linger_tells_of_losses_early() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    // A third of the ttl would be 10 s.
    let options = Options::default().ttl(ms(30_000)).linger(ms(3_000));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    let guard = locks.lock("k").lock().await.unwrap();
    let keep_alive = guard.keep_alive();
    proxy.cut();
    eventually("its end comes forward", || {
        admin.int(&["PTTL", "k"]) <= 3_000
    })
    .await;
    eventually("it is renewed", || admin.int(&["PTTL", "k"]) > 20_000).await;
    assert!(!keep_alive.is_lost());
    let lost = Instant::now();
    assert_eq!(admin.int(&["DEL", "k"]), 1);
    eventually("it is told", || keep_alive.is_lost()).await;
    assert!(lost.elapsed() < ms(6_000), "{:?}", lost.elapsed());
}
