//! What only one of the two clients has to do: cancelled futures, messages of a channel, and a
//! blocking connection that died unseen.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Admin, BOUND, Server, eventually, proxied};
use redis_lock_client::aio::LockClient;
use redis_lock_client::{Error, Mode, Options, sync};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn locks(url: String) -> LockClient {
    LockClient::open(url, Options::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_upgrade_leaves_its_share_and_does_not_undo_the_next() {
    let server = Server::start();
    let (pages, mut admin) = (locks(server.url()).rwlock("page"), server.admin());
    for waits_for_its_end in [true, false, false, false] {
        let (mut guard, other) = (pages.read().await.unwrap(), pages.read().await.unwrap());
        assert!(timeout(ms(80), guard.upgrade()).await.is_err());
        if waits_for_its_end {
            admin.await_waiters("page", 0);
            assert_eq!(guard.mode(), Mode::Shared);
            guard.renew().await.unwrap();
            assert!(admin.info("page").contains("shared"));
        }
        other.unlock().await.unwrap();
        guard.upgrade().await.unwrap();
        for _ in 0..20 {
            assert!(admin.info("page").contains("exclusive"));
            sleep(ms(2)).await;
        }
        guard.unlock().await.unwrap();
    }
}

#[test]
fn an_idle_connection_that_is_dead_costs_no_slice() {
    let (_server, proxy, _) = proxied();
    let lock = sync::LockClient::open(proxy.url(), Options::default()).unwrap();
    let lock = lock.lock("k");
    lock.lock().unwrap().unlock().unwrap();
    proxy.faults().late = "LOCK.ACQUIRE";
    let start = Instant::now();
    let guard = lock.lock().unwrap();
    assert!(start.elapsed() < ms(8_000), "{:?}", start.elapsed());
    assert_eq!(proxy.connections(), 2);
    guard.unlock().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_leaves_nothing_behind() {
    let server = Server::start();
    let (locks, mut admin) = (locks(server.url()), server.admin());
    for turn in 0..10 {
        let mut held = Some(locks.semaphore("a", 1).acquire().await.unwrap());
        let (permits, both) = (locks.semaphore("a", 1), locks.multi_lock(["a", "b"]));
        let permit = tokio::spawn(async move { permits.acquire().await.map(drop) });
        admin.await_waiters("a", 1);
        let several = tokio::spawn(async move { both.lock().await.map(drop) });
        admin.await_waiters("a", 2);
        assert_eq!(admin.waiters("b"), 1);
        // At the moment of the grant, but for the first time.
        if turn > 0 {
            held = None;
        }
        permit.abort();
        several.abort();
        admin.await_waiters("a", 0);
        drop(held);
        eventually("both are free", || admin.is_free("a") && admin.is_free("b"));
    }
}

/// Nobody would hear of its grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_after_its_cancel_and_when_it_cannot_hear() {
    let (server, options) = (Server::start(), Options::default().reconnect(ms(100)));
    let mut admin = server.admin();
    let waiting = one_that_waits(&server, &mut admin, options.clone());
    let lock = LockClient::open(server.url(), options).unwrap().lock("k");
    let ends = tokio::spawn(async move { lock.lock_timeout(ms(1_000)).await.is_err() });
    admin.await_waiters("k", 2);
    admin.run(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    waiting.abort();
    assert!(ends.await.unwrap());
    sleep(ms(500)).await;
    admin.run(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let start = Instant::now();
    admin.await_waiters("k", 0);
    // Otherwise a grace of 5 s would have passed.
    assert!(start.elapsed() < ms(3_000), "{:?}", start.elapsed());
    // One that may not listen any more would not hear either.
    let waiting = one_that_waits(&server, &mut admin, Options::default());
    admin.run(&["CONFIG", "SET", "requirepass", "secret"]);
    admin.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let ended = timeout(BOUND, waiting).await.unwrap();
    assert!(ended.unwrap_err().is_panic());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_cut_off_has_run_if_it_had_its_lock() {
    let (_server, proxy, mut admin) = proxied();
    let locks = locks(proxy.url());
    let (minute, thirty) = (ms(60_000), ms(30_000));
    let (begins, begun) = tokio::sync::oneshot::channel();
    let endless = locks.run_once("k", minute, thirty, async |_| {
        begins.send(()).unwrap();
        sleep(minute).await;
    });
    tokio::select! {
        ended = endless => panic!("{ended:?}"),
        begun = begun => begun.unwrap(),
    }
    eventually("it is released", || admin.int(&["PTTL", "k"]) <= 30_000);
    assert!(admin.int(&["PTTL", "k"]) > 15_000);

    admin.run(&["DEL", "k"]);
    let released = admin.calls("lock.release");
    proxy.delay_replies(1_000);
    let never = locks.run_once("k", minute, thirty, async |_| panic!("it ran"));
    assert!(timeout(ms(100), never).await.is_err());
    eventually("it is given up", || admin.calls("lock.release") > released);
    assert!(admin.is_free("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maker_that_is_cut_off_leaves_it_to_the_next() {
    let server = Server::start();
    let (locks, mut admin) = (locks(server.url()), server.admin());
    let get = |endless: bool| {
        let page = locks.once("page").with_wait(BOUND);
        let make = async move |guard: &redis_lock_client::aio::Guard| {
            if endless {
                guard.lost().await;
            }
            Ok::<_, Error>("made".to_owned())
        };
        tokio::spawn(async move { page.get_or_make(make).await })
    };
    let first = get(true);
    eventually("it makes", || !admin.is_free("{page}:once"));
    let (given_up, next) = (get(true), get(false));
    admin.await_waiters("{page}:once", 2);
    given_up.abort();
    admin.await_waiters("{page}:once", 1);
    first.abort();
    assert_eq!(next.await.unwrap().unwrap(), "made");
}

/// A renewal at a third of the ttl, which the proxy lets get to the server after what its owner sends
/// next, if that does not wait for it.
#[test]
fn a_late_renewal_neither_prolongs_what_a_job_leaves_nor_shortens_a_lease() {
    for is_job in [true, false] {
        let (_server, proxy, mut admin) = proxied();
        proxy.faults().late = "LOCK.RENEW";
        let options = Options::default().ttl(ms(4_500));
        let locks = sync::LockClient::open(proxy.url(), options).unwrap();
        let renews = || eventually("it renews", || proxy.faults().held_back == 1);
        let owns = || {
            if is_job {
                let ran = locks.run_once("k", ms(4_500), ms(3_000), |guard| {
                    let _keep_alive = guard.keep_alive();
                    renews();
                });
                return assert!(ran.unwrap().is_some());
            }
            let guard = locks.lock("k").lock().unwrap();
            let keep_alive = guard.keep_alive();
            renews();
            drop(keep_alive);
            guard.extend(ms(600_000)).unwrap();
            assert!(guard.valid_until() > Instant::now() + ms(500_000));
            std::mem::forget(guard);
        };
        thread::scope(|scope| {
            scope.spawn(owns);
            renews();
            thread::sleep(ms(300));
            proxy.faults().late = "";
        });
        let times = if is_job { 1 } else { 2 };
        eventually("all", || admin.calls("lock.renew") == times);
        let left = admin.int(&["PTTL", "k"]);
        assert_eq!((left <= 3_000, left > 500_000), (is_job, !is_job), "{left}");
    }
}

/// As each `#[tokio::test]` has one of its own.
#[test]
fn a_client_outlives_the_runtime_that_it_was_made_in() {
    let server = Server::start();
    let mut admin = server.admin();
    let options = Options::default().ttl(ms(6_000));
    // Made outside of any.
    let locks = LockClient::open(server.url(), options).unwrap();
    for _ in 0..2 {
        Runtime::new().unwrap().block_on(async {
            let guard = locks.lock("k").lock().await.unwrap();
            let kept = guard.keep_alive();
            let end = guard.valid_until();
            eventually("it is renewed", || guard.valid_until() > end);
            // It listens, in this runtime.
            let lock = locks.lock("k");
            let waiting = tokio::spawn(async move { lock.lock_timeout(BOUND).await });
            admin.await_waiters("k", 1);
            assert!(admin.info("k").contains("channel"));
            drop((kept, guard));
            drop(waiting.await.unwrap().unwrap().unwrap());
            locks.shutdown().await;
            assert!(admin.is_free("k"));
        });
    }
    let lock = locks.lock("k");
    let held = Runtime::new().unwrap().block_on(lock.lock()).unwrap();
    Runtime::new().unwrap().block_on(async move {
        held.renew().await.unwrap();
        drop(held);
        eventually("it is released", || admin.is_free("k"));
    });
}

#[test]
fn a_shutdown_waits_for_what_drops_have_left() {
    let (_server, proxy, mut admin) = proxied();
    let locks = locks(proxy.url());
    // The end of a `main` drops its tasks before they have run.
    let main = Builder::new_current_thread().enable_all().build().unwrap();
    main.block_on(async { drop(locks.lock("k").lock().await.unwrap()) });
    drop(main);
    assert!(!admin.is_free("k"));
    admin.run(&["DEL", "k"]);
    Runtime::new().unwrap().block_on(async {
        proxy.delay_replies(100);
        drop(locks.lock("k").lock().await.unwrap());
        let asking = locks.lock("l");
        assert!(timeout(ms(50), asking.lock()).await.is_err());
        locks.shutdown().await;
        assert!(admin.is_free("k") && admin.is_free("l"));
        // The proxy passes the end of a connection on.
        eventually("none is left", || admin.clients("cmd=lock") == 0);
    });
}

#[test]
fn a_wait_and_a_release_need_a_runtime() {
    let server = Server::start();
    let lock = locks(server.url()).lock("k");
    let guard = Runtime::new().unwrap().block_on(lock.lock()).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let asked = lock.try_lock().as_mut().poll(&mut context).is_ready();
    let released = guard.unlock().as_mut().poll(&mut context);
    let is_told = matches!(released, std::task::Poll::Ready(Err(Error::NoRuntime)));
    assert!(asked && is_told);
}

/// A task that waits by the channel, for a lock which an operator holds, and asks again within an hour.
fn one_that_waits(server: &Server, admin: &mut Admin, options: Options) -> JoinHandle<()> {
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let patient = options.slice(ms(3_600_000));
    let lock = LockClient::open(server.url(), patient).unwrap().lock("k");
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    admin.await_waiters("k", 1);
    assert!(admin.info("k").contains("channel"));
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_heard_and_a_lost_subscription_is_made_up_for() {
    let server = Server::start();
    let mut admin = server.admin();
    let waiting = one_that_waits(&server, &mut admin, Options::default());
    let asked = admin.calls("lock.acquire");
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(BOUND, waiting).await.unwrap().unwrap();
    assert_eq!(admin.calls("lock.acquire"), asked);

    let waiting = one_that_waits(&server, &mut admin, Options::default());
    let asked = admin.calls("lock.acquire");
    admin.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("it asked again", || admin.calls("lock.acquire") > asked);
    admin.await_waiters("k", 1);
    // The message is published before anybody hears it again.
    admin.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(BOUND, waiting).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_read_and_other_bytes_are_ignored() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "a k", "holder", "60000"]);
    let patient = Options::default().slice(ms(3_600_000));
    let lock = LockClient::open(server.url(), patient).unwrap().lock("a k");
    let waiting = tokio::spawn(async move { lock.with_token("t").lock().await.map(drop) });
    admin.await_waiters("a k", 1);
    let channels = admin.run(&["PUBSUB", "CHANNELS", "redis-lock:*"]);
    let [channel]: [String; 1] = redis::from_redis_value(channels).unwrap();
    let asked = admin.calls("lock.acquire");
    for other in [
        "granted",
        "granted 17 3 a k ",
        "granted 17 3 a kt",
        "granted +7 3 a k t",
        "granted 0 3 a k t",
        "granted 17 99999999999999999999 a k t",
        "granted 17 18446744073709551615 a k t",
    ] {
        admin.run(&["PUBLISH", &channel, other]);
    }
    let reasons = ["timeout", "result", "tryagain", "granted", "revoked"];
    for (before, reason) in reasons.iter().enumerate() {
        admin.run(&["PUBLISH", &channel, &format!("{reason} 17 3 a k t")]);
        eventually(reason, || admin.calls("lock.acquire") > asked + before);
    }
    admin.run(&["PUBLISH", &channel, "deadlock 0 3 a k t"]);
    let ended = timeout(BOUND, waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::Deadlock(_))), "{ended:?}");
    assert_eq!(admin.calls("lock.acquire"), asked + reasons.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ended_with_its_connection_goes_on() {
    let server = Server::start();
    let mut admin = server.admin();
    let options = Options::default().linger(ms(60_000)).grace(ms(3_000));
    let waiting = one_that_waits(&server, &mut admin, options);
    // The subscription stays, and hears nothing of it.
    admin.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    admin.run(&["LOCK.ACQUIRE", "k", "next", "60000", "KEEP", "60000"]);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    timeout(BOUND, waiting).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_wait_over_two_connections() {
    let server = Server::start();
    // A machine under load may not answer all of them in 3 s.
    let options = Options::default().reconnect(BOUND);
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    let before = admin.clients("");
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let mut tasks = JoinSet::new();
    for _ in 0..300 {
        let lock = locks.lock("k");
        tasks.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    }
    admin.await_waiters("k", 300);
    assert_eq!(admin.clients("") - before, 2);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    tasks.join_all().await;
    assert!(admin.is_free("k"));
}

/// Its share ended while it waited.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_ends_with_its_share() {
    let server = Server::start();
    let options = Options::default().ttl(ms(2_000)).slice(ms(100));
    let pages = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    let mut guard = pages.rwlock("page").read().await.unwrap();
    admin.run(&["RWLOCK.RLOCK", "page", "other", "60000"]);
    let upgraded = timeout(BOUND, guard.upgrade()).await.unwrap();
    assert!(matches!(upgraded, Err(Error::NotHeld)), "{upgraded:?}");
    assert_eq!(admin.waiters("page"), 0);
}

/// As when a firewall has forgotten it: the server has no receiver any more, and the client does
/// not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_listens_and_was_forgotten_is_made_anew() {
    let (_server, proxy, mut admin) = proxied();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let lock = locks(proxy.url()).lock("k");
    let waiting = tokio::spawn(async move { lock.lock_timeout(BOUND).await });
    admin.await_waiters("k", 1);
    proxy.forget_subscribed();
    // It notices while it waits.
    eventually("it listens again", || proxy.has_subscribed());
    admin.await_waiters("k", 1);
    let start = Instant::now();
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    drop(waiting.await.unwrap().unwrap().unwrap());
    assert!(start.elapsed() < ms(4_000), "{:?}", start.elapsed());
}
