//! How long a hold lasts by the client's clock, and what the server says to that.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use common::{Admin, Proxy, Server, counter, eventually};
use redis_lock_client::{Error, Options, aio, sync};
use tokio::time::sleep;

const TRY_AGAIN: &str = "-TRYAGAIN not enough servers have confirmed it\r\n";
const ALWAYS: usize = usize::MAX;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A short ttl would be over on a busy machine.
fn options() -> Options {
    Options::default().ttl(ms(2_000))
}

fn calls(admin: &mut Admin, command: &str) -> usize {
    let info = format!("{:?}", admin.run(&["INFO", "commandstats"])).to_lowercase();
    let calls = info.split(&format!("cmdstat_{command}:calls=")).nth(1);
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

fn renewals(admin: &mut Admin) -> usize {
    calls(admin, "lock.renew")
}

fn is_too_long(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::TtlTooLong(_)) && text.contains("with_ttl") && text.contains("max-ttl")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_counts_from_the_sending_less_the_drift() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let one = sync::LockClient::open(proxy.url(), options()).unwrap();
    let other = aio::LockClient::open(proxy.url(), options()).unwrap();
    let one = one.lock("a").lock().unwrap();
    let other = other.lock("b").lock().await.unwrap();
    proxy.delay_replies(200);
    let sent = Instant::now();
    one.extend(ms(100_000)).unwrap();
    let early = one.valid_until() - sent;
    assert!(early >= ms(98_998) && early < ms(99_150), "{early:?}");
    let sent = Instant::now();
    other.extend(ms(100_000)).await.unwrap();
    let early = other.valid_until() - sent;
    assert!(early >= ms(98_998) && early < ms(99_150), "{early:?}");

    // A request that shortens it counts without an answer, too.
    proxy.delay_replies(0);
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    one.extend(ms(500)).unwrap_err();
    other.extend(ms(500)).await.unwrap_err();
    assert!(one.is_lost() && other.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_over_stays_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let mut admin = server.admin();
    let one = sync::LockClient::open(proxy.url(), options()).unwrap();
    let other = aio::LockClient::open(proxy.url(), options()).unwrap();
    let one = one.lock("a").with_token("t").with_ttl(ms(300));
    let one = one.lock().unwrap();
    let other = other.lock("b").with_token("t").with_ttl(ms(300));
    let other = other.lock().await.unwrap();
    admin.run(&["LOCK.RENEW", "a", "t", "60000"]);
    admin.run(&["LOCK.RENEW", "b", "t", "60000"]);
    proxy.delay_replies(400);
    let late = tokio::spawn(async move { other.extend(ms(60_000)).await.unwrap_err() });
    assert!(matches!(one.extend(ms(60_000)), Err(Error::NotHeld)));
    assert!(matches!(late.await.unwrap(), Error::NotHeld));
    proxy.delay_replies(0);
    eventually("nothing is left", || {
        admin.is_free("a") && admin.is_free("b")
    });
}

#[test]
fn a_grant_that_came_late_is_renewed() {
    let server = Server::start();
    let locks = sync::LockClient::open(server.url(), options()).unwrap();
    let mut admin = server.admin();
    type Way = fn(&sync::LockClient) -> sync::Guard;
    let ways: [(usize, Way); 4] = [
        (1, |locks| locks.lock("k").lock().unwrap()),
        (1, |locks| locks.rwlock("k").read().unwrap()),
        (1, |locks| locks.semaphore("k", 2).acquire().unwrap()),
        (2, |locks| locks.multi_lock(["k", "l"]).lock().unwrap()),
    ];
    for (keys, way) in ways {
        let before = renewals(&mut admin);
        way(&locks).unlock().unwrap();
        assert_eq!(renewals(&mut admin), before);
        let holder = locks.lock("k").with_ttl(ms(60_000)).lock().unwrap();
        let waiting = thread::spawn({
            let locks = locks.clone();
            move || way(&locks)
        });
        admin.await_waiters("k", 1);
        thread::sleep(ms(300));
        holder.unlock().unwrap();
        let guard = waiting.join().unwrap();
        assert_eq!(renewals(&mut admin), before + keys);
        guard.unlock().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_grant_that_is_lost_is_asked_for_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let one = sync::LockClient::open(proxy.url(), options()).unwrap();
    let other = aio::LockClient::open(proxy.url(), options()).unwrap();
    let mut admin = server.admin();
    for is_async in [false, true] {
        admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
        let before = calls(&mut admin, "lock.acquire");
        let (one, other) = (one.lock("k"), other.lock("k"));
        let waiting = tokio::spawn(async move {
            match is_async {
                true => other.lock().await.unwrap().unlock().await.unwrap(),
                false => one.lock().unwrap().unlock().unwrap(),
            }
        });
        admin.await_waiters("k", 1);
        sleep(ms(300)).await;
        proxy.answer_renewals(1, ":0\r\n");
        admin.run(&["LOCK.RELEASE", "k", "holder"]);
        waiting.await.unwrap();
        assert_eq!(proxy.fakes_left(), 0);
        // The one that waited is the second of a task, which asks without waiting first.
        let asked = 2 + usize::from(is_async);
        assert_eq!(calls(&mut admin, "lock.acquire"), before + asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn try_again_loses_nothing_before_the_lease_is_over() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (lost, count) = counter();
    let options = options().on_lost(count);
    let mut admin = server.admin();
    let mut renews_after_all = || {
        let before = renewals(&mut admin);
        proxy.answer_renewals(3, TRY_AGAIN);
        eventually("a renewal is answered", || renewals(&mut admin) > before);
        assert_eq!(proxy.fakes_left(), 0);
    };

    let locks = sync::LockClient::open(proxy.url(), options.clone()).unwrap();
    let guard = locks.lock("a").lock().unwrap();
    let watchdog = guard.keep_alive();
    renews_after_all();
    assert!(!watchdog.is_lost());
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    assert!(watchdog.wait_lost(common::BOUND));
    assert!(Instant::now() >= guard.valid_until());

    let locks = aio::LockClient::open(proxy.url(), options).unwrap();
    let guard = locks.lock("b").lock().await.unwrap();
    let watchdog = guard.keep_alive();
    renews_after_all();
    assert!(!watchdog.is_lost());
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    watchdog.lost().await;
    assert!(Instant::now() >= guard.valid_until());
    eventually("both are told", || lost.load(SeqCst) == 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_by_hand_asks_again_until_the_lease_ends() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    // Longer than a server that is out of reach is asked.
    let options = Options::default().ttl(ms(4_500));
    let one = sync::LockClient::open(proxy.url(), options.clone()).unwrap();
    let other = aio::LockClient::open(proxy.url(), options).unwrap();
    let one = one.lock("a").lock().unwrap();
    let other = other.lock("b").lock().await.unwrap();
    proxy.answer_renewals(2, TRY_AGAIN);
    one.renew().unwrap();
    proxy.answer_renewals(2, TRY_AGAIN);
    other.renew().await.unwrap();
    assert_eq!(proxy.fakes_left(), 0);
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    let late = tokio::spawn(async move {
        let end = other.valid_until();
        assert!(matches!(other.renew().await, Err(Error::NotHeld)));
        assert!(Instant::now() >= end && other.is_lost());
    });
    let end = one.valid_until();
    assert!(matches!(one.renew(), Err(Error::NotHeld)));
    assert!(Instant::now() >= end && one.is_lost());
    late.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ttl_above_max_ttl_says_so() {
    let server = Server::start_with(&["max-ttl", "2000"]);
    let locks = sync::LockClient::open(server.url(), options().ttl(ms(2_001))).unwrap();
    for refused in [
        locks.lock("k").lock(),
        locks.rwlock("k").read(),
        locks.semaphore("k", 2).acquire(),
        locks.multi_lock(["k"]).lock(),
    ] {
        assert!(is_too_long(&refused.unwrap_err()));
    }
    let locks = aio::LockClient::open(server.url(), options()).unwrap();
    let refused = locks.lock("k").with_ttl(ms(2_001)).lock().await;
    assert!(is_too_long(&refused.unwrap_err()));
    let guard = locks.lock("k").lock().await.unwrap();
    assert!(is_too_long(&guard.extend(ms(2_001)).await.unwrap_err()));
    assert!(!guard.is_lost());
}
