//! `Options::fallback`, on servers that have no module and on one that has it.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use common::{BOUND, Server, counter, eventually};
use redis_lock_client::{Error, Options, aio, sync};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn falling_back() -> Options {
    Options::default().fallback(true)
}

#[track_caller]
fn is_missing<T>(result: redis_lock_client::Result<T>) -> String {
    match result {
        Err(error @ Error::ModuleMissing(_)) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

#[track_caller]
fn is_not_in_fallback<T>(result: redis_lock_client::Result<T>) {
    let text = is_missing(result);
    assert!(text.contains("not available in the fallback"), "{text}");
}

#[test]
fn a_missing_module_is_explained() {
    let server = Server::start_without_module();
    let locks = sync::LockClient::open(server.url(), Options::default()).unwrap();
    let rwlock = locks.rwlock("k");
    let texts = [
        is_missing(locks.lock("k").try_lock()),
        is_missing(rwlock.read()),
        is_missing(rwlock.try_write()),
        is_missing(locks.semaphore("k", 3).acquire()),
        is_missing(locks.multi_lock(["k", "l"]).lock()),
        is_missing(locks.run_once("k", ms(1_000), ms(500), |_| ())),
    ];
    for text in texts {
        for part in [
            "loadmodule /path/libredis_lock.so",
            "restart the server",
            "Options::fallback",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert_eq!(server.admin().int(&["DBSIZE"]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_module_is_explained_to_tasks() {
    let server = Server::start_without_module();
    let locks = aio::LockClient::open(server.url(), Options::default()).unwrap();
    is_missing(locks.lock("k").lock().await);
    is_missing(locks.rwlock("k").read().await);
    is_missing(locks.semaphore("k", 3).acquire().await);
    is_missing(locks.multi_lock(["k", "l"]).lock().await);
    let job = locks.run_once("k", ms(1_000), ms(500), async |_: &aio::Guard| ());
    is_missing(job.await);
}

#[test]
fn the_fallback_excludes_threads_and_tasks() {
    let server = Server::start_without_module();
    let (said, count) = counter::<str>();
    let locks = sync::LockClient::open(server.url(), falling_back().on_fallback(count)).unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let (url, inside) = (server.url(), inside.clone());
            runtime.spawn(async move {
                let locks = aio::LockClient::open(url, falling_back()).unwrap();
                for _ in 0..10 {
                    let guard = locks.lock("k").lock_timeout(BOUND).await.unwrap().unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    tokio::task::yield_now().await;
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (lock, inside) = (locks.lock("k"), inside.clone());
            thread::spawn(move || {
                for _ in 0..10 {
                    let guard = lock.lock_timeout(BOUND).unwrap().unwrap();
                    assert_eq!(guard.fence(), 0);
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    thread::yield_now();
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(said.load(SeqCst), 1);
    assert_eq!(server.admin().int(&["DBSIZE"]), 0);
}

#[test]
fn a_late_owner_of_the_fallback_changes_nothing() {
    let server = Server::start_without_module();
    let locks = sync::LockClient::open(server.url(), falling_back()).unwrap();
    let mut admin = server.admin();
    let late = locks.lock("k").with_ttl(ms(60_000)).lock().unwrap();
    assert!(admin.int(&["PTTL", "k"]) > 50_000);
    admin.run(&["SET", "k", "somebody else", "PX", "30000"]);
    assert!(!late.check().unwrap());
    assert!(matches!(late.renew(), Err(Error::NotHeld)));
    assert!(matches!(late.unlock(), Err(Error::NotHeld)));
    assert!((1..=30_000).contains(&admin.int(&["PTTL", "k"])));
    // Of another type, too, as other libraries use.
    admin.run(&["DEL", "k"]);
    let late = locks.lock("k").lock().unwrap();
    admin.run(&["DEL", "k"]);
    admin.run(&["HSET", "k", "field", "1"]);
    assert!(locks.lock("k").try_lock().unwrap().is_none());
    assert!(matches!(late.renew(), Err(Error::NotHeld)));
    drop(late);
    assert_eq!(admin.int(&["EXISTS", "k"]), 1);
}

#[test]
fn a_hold_of_the_fallback_is_renewed() {
    let server = Server::start_without_module();
    let locks = sync::LockClient::open(server.url(), falling_back()).unwrap();
    let guard = locks.lock("k").with_ttl(ms(600)).lock().unwrap();
    let keep_alive = guard.keep_alive();
    let since = std::time::Instant::now();
    let mut admin = server.admin();
    while since.elapsed() < ms(1_500) {
        assert_eq!(admin.int(&["EXISTS", "k"]), 1);
        thread::sleep(ms(20));
    }
    assert!(!guard.is_lost() && guard.check().unwrap());
    drop(keep_alive);
    guard.unlock().unwrap();
    // A wait for one that nobody renews ends with its ttl.
    let kept = locks.lock("k").with_ttl(ms(200)).lock().unwrap();
    let next = locks.lock("k").lock_timeout(BOUND).unwrap().unwrap();
    assert!(kept.is_lost());
    next.unlock().unwrap();
    assert!(matches!(kept.unlock(), Err(Error::NotHeld)));
}

#[test]
fn the_fallback_has_no_more_than_a_lock() {
    let server = Server::start_without_module();
    for is_first in [true, false] {
        let locks = sync::LockClient::open(server.url(), falling_back()).unwrap();
        if !is_first {
            locks.lock("k").lock().unwrap().unlock().unwrap();
        }
        is_not_in_fallback(locks.multi_lock(["k", "l"]).lock());
        is_not_in_fallback(locks.rwlock("k").read());
        is_not_in_fallback(locks.semaphore("k", 3).try_acquire());
        is_not_in_fallback(locks.run_once("k", ms(1_000), ms(500), |_| ()));
        let ran = locks.run_once("k", ms(1_000), Duration::ZERO, |_| 7);
        assert_eq!(ran.unwrap(), Some(7));
        let mut guard = locks.rwlock("k").write().unwrap();
        is_not_in_fallback(guard.exec::<()>(redis::cmd("SET").arg("v").arg(1)));
        is_not_in_fallback(guard.downgrade());
        guard.unlock().unwrap();
    }
    assert_eq!(server.admin().int(&["DBSIZE"]), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fallback_of_tasks_has_no_more_than_a_lock() {
    let server = Server::start_without_module();
    let (said, count) = counter::<str>();
    let options = falling_back().on_fallback(count).ttl(ms(600));
    let locks = aio::LockClient::open(server.url(), options).unwrap();
    is_not_in_fallback(locks.multi_lock(["k", "l"]).lock().await);
    is_not_in_fallback(locks.rwlock("k").read().await);
    is_not_in_fallback(locks.semaphore("k", 3).acquire().await);
    let job = locks.run_once("k", ms(1_000), ms(500), async |_: &aio::Guard| ());
    is_not_in_fallback(job.await);
    let guard = locks.lock("k").lock().await.unwrap();
    let keep_alive = guard.keep_alive();
    is_not_in_fallback(guard.exec::<()>(redis::cmd("SET").arg("v").arg(1)).await);
    assert!(
        locks
            .lock("k")
            .lock_timeout(ms(900))
            .await
            .unwrap()
            .is_none()
    );
    assert!(!guard.is_lost() && guard.check().await.unwrap());
    drop(keep_alive);
    let waiting = tokio::spawn(async move { locks.lock("k").lock().await.map(drop) });
    drop(guard);
    waiting.await.unwrap().unwrap();
    let mut admin = server.admin();
    eventually("the dropped guard has released", || {
        admin.int(&["DBSIZE"]) == 0
    });
    assert_eq!(said.load(SeqCst), 1);
}

#[test]
fn an_answer_that_was_lost_is_no_obstacle_in_the_fallback() {
    let server = Server::start_without_module();
    let proxy = common::Proxy::to(server.port);
    let locks = sync::LockClient::open(proxy.url(), falling_back()).unwrap();
    locks.lock("k").lock().unwrap().unlock().unwrap();
    for of in ["'SET'", "PEXPIRE", "'DEL'"] {
        proxy.lose_replies(1, of);
        let guard = locks.lock("k").try_lock().unwrap().unwrap();
        guard.renew().unwrap();
        guard.unlock().unwrap();
        assert_eq!(proxy.losses_left(), 0, "{of}");
    }
}

/// The choice is made once, so that the two ways of locking never meet in one client.
#[test]
fn the_fallback_is_chosen_once_and_not_where_the_module_is() {
    let server = Server::start();
    let (said, count) = counter::<str>();
    let locks = sync::LockClient::open(server.url(), falling_back().on_fallback(count)).unwrap();
    let mut guard = locks.rwlock("k").write().unwrap();
    assert!(guard.fence() > 0);
    guard.downgrade().unwrap();
    guard.unlock().unwrap();
    locks
        .multi_lock(["k", "l"])
        .lock()
        .unwrap()
        .unlock()
        .unwrap();
    locks.semaphore("k", 3).acquire().unwrap().unlock().unwrap();
    let ran = locks.run_once("k", ms(1_000), ms(1), |_| 7).unwrap();
    assert_eq!((ran, said.load(SeqCst)), (Some(7), 0));
    // The module goes, and the client does not change its mind.
    let mut admin = server.admin();
    if admin.ask(&["MODULE", "UNLOAD", "lock"]).is_ok() {
        is_missing(locks.lock("k").lock());
        assert_eq!(said.load(SeqCst), 0);
    }
}
