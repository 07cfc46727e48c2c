//! Semaphores, several locks as one, guarded commands, jobs that run once, and linger: the blocking
//! client, on a real server.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Admin, BOUND, Proxy, Server, eventually, without_at_least};
use redis_lock_client::sync::{Guard, LockClient};
use redis_lock_client::{Error, Mode, Options};

const PERMITS: u32 = 3;
const PROCESSES: usize = 3;
const THREADS: usize = 3;
const TURNS: usize = 10;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn locks(server: &Server) -> LockClient {
    LockClient::open(server.url(), Options::default()).unwrap()
}

#[test]
fn permits_are_counted() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let two = locks.semaphore("k", 2);
    let mut first = two.acquire().unwrap();
    let second = two.try_acquire().unwrap().unwrap();
    assert!(second.fence() > first.fence() && second.token() != first.token());
    assert_eq!((first.key(), first.mode()), (&b"k"[..], Mode::Counted));
    assert!(two.try_acquire().unwrap().is_none());
    assert!(two.acquire_timeout(ms(30)).unwrap().is_none());
    assert!(locks.lock("k").try_lock().unwrap().is_none());
    assert_eq!(admin.waiters("k"), 0);
    // The smallest number counts.
    drop(second);
    let one = locks.semaphore("k", 5).try_acquire().unwrap().unwrap();
    assert!(locks.semaphore("k", 5).try_acquire().unwrap().is_none());
    assert!(matches!(first.upgrade(), Err(Error::NoConversion)));
    assert!(matches!(first.downgrade(), Err(Error::NoConversion)));
    first.renew().unwrap();
    first.unlock().unwrap();
    one.unlock().unwrap();
    assert!(admin.is_free("k"));
    assert!(matches!(
        locks.semaphore("k", 0).try_acquire(),
        Err(Error::Redis(_))
    ));
}

#[test]
fn keep_alive_renews_permits_and_several_locks() {
    let server = Server::start();
    let (lost, count) = common::counter();
    let options = Options::default().ttl(ms(600)).on_lost(count);
    let locks = LockClient::open(server.url(), options).unwrap();
    let mut admin = server.admin();
    let permit = locks.semaphore("s", 2).acquire().unwrap();
    let both = locks.multi_lock(["a", "b"]).lock().unwrap();
    let watchdogs = (permit.keep_alive(), both.keep_alive());
    let begin = both.valid_until().max(permit.valid_until());
    eventually("three renewals", || {
        both.valid_until().min(permit.valid_until()) > begin + ms(600)
    });
    assert!(permit.check().unwrap() && both.check().unwrap());
    admin.run(&["DEL", "s"]);
    admin.run(&["DEL", "b"]);
    assert!(watchdogs.0.wait_lost(BOUND) && watchdogs.1.wait_lost(BOUND));
    assert!(permit.is_lost() && both.is_lost());
    eventually("both are told", || lost.load(SeqCst) == 2);
}

fn in_turn(
    order: &Arc<Mutex<Vec<usize>>>,
    number: usize,
    take: impl FnOnce() -> Guard + Send + 'static,
) -> JoinHandle<()> {
    let order = order.clone();
    thread::spawn(move || {
        let guard = take();
        order.lock().unwrap().push(number);
        thread::sleep(ms(20));
        guard.unlock().unwrap();
    })
}

#[test]
fn permits_are_given_in_order_of_arrival() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let two = locks.semaphore("k", 2);
    let (first, second) = (two.acquire().unwrap(), two.acquire().unwrap());
    let order = Arc::default();
    let mut waiting = Vec::new();
    for number in 0..6 {
        let two = two.clone();
        waiting.push(in_turn(&order, number, move || two.acquire().unwrap()));
        admin.await_waiters("k", number + 1);
    }
    // One that loses its connection keeps its place.
    admin.cut_first_waiter("k");
    eventually("it is back", || {
        admin.waiters("k") == 6 && admin.info("k").matches("client").count() == 6
    });
    // One by one: two that enter together may tell in any order.
    first.unlock().unwrap();
    for waiter in waiting {
        waiter.join().unwrap();
    }
    second.unlock().unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert!(admin.is_free("k"));
}

#[test]
fn several_processes_never_hold_more_than_the_permits() {
    let server = Server::start();
    let mut admin = server.admin();
    let workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_process_of_workers", "--ignored"])
                .env("WORKERS_URL", server.url())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let seen: Vec<u32> =
        redis::from_redis_value(admin.run(&["LRANGE", "seen", "0", "-1"])).unwrap();
    assert_eq!(seen.len(), PROCESSES * THREADS * TURNS);
    assert_eq!(seen.iter().max(), Some(&PERMITS));
    assert!(admin.is_free("k"));
}

#[test]
#[ignore = "a process of several_processes_never_hold_more_than_the_permits"]
fn a_process_of_workers() {
    let Ok(url) = std::env::var("WORKERS_URL") else {
        return;
    };
    let locks = LockClient::open(url.as_str(), Options::default()).unwrap();
    let client = redis::Client::open(url).unwrap();
    let work = || {
        let mut connection = client.get_connection().unwrap();
        for _ in 0..TURNS {
            let permit = locks.semaphore("k", PERMITS).acquire().unwrap();
            let inside: i64 = redis::cmd("INCR")
                .arg("inside")
                .query(&mut connection)
                .unwrap();
            let push = redis::cmd("RPUSH").arg("seen").arg(inside).to_owned();
            let _: () = push.query(&mut connection).unwrap();
            thread::sleep(ms(60));
            let _: () = redis::cmd("DECR")
                .arg("inside")
                .query(&mut connection)
                .unwrap();
            permit.unlock().unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
}

#[test]
fn all_locks_are_taken_or_none() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let both = locks.multi_lock(["a", "b"]);
    let other = locks.lock("b").lock().unwrap();
    assert!(both.try_lock().unwrap().is_none());
    assert!(both.lock_timeout(ms(30)).unwrap().is_none());
    assert!(admin.is_free("a") && admin.waiters("b") == 0);
    other.unlock().unwrap();
    let mut guard = both.lock().unwrap();
    let token = String::from_utf8(guard.token().to_vec()).unwrap();
    let fence = guard.fence().to_string();
    for key in ["a", "b"] {
        let info = admin.info(key);
        assert!(info.contains(&token) && info.contains(&fence), "{info}");
    }
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(matches!(guard.downgrade(), Err(Error::NoConversion)));
    guard.extend(ms(500_000)).unwrap();
    assert!(admin.int(&["PTTL", "a"]) > 400_000 && admin.int(&["PTTL", "b"]) > 400_000);
    guard.unlock().unwrap();
    assert!(admin.is_free("a") && admin.is_free("b"));

    let mixed = locks.multi_lock(["a"]).and_shared(["b"]).lock().unwrap();
    let reader = locks.rwlock("b").try_read().unwrap().unwrap();
    assert!(locks.lock("b").try_lock().unwrap().is_none());
    drop((mixed, reader));
    assert!(admin.is_free("a") && admin.is_free("b"));
    for wrong in [&["a", "a"][..], &[]] {
        let refused = locks.multi_lock(wrong).try_lock();
        assert!(matches!(refused, Err(Error::Redis(_))), "{refused:?}");
    }
}

#[test]
fn requests_that_cross_never_block_one_another() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..6 {
            let (locks, inside) = (&locks, &inside);
            scope.spawn(move || {
                for _ in 0..40 {
                    let guard = match number % 3 {
                        0 => locks.multi_lock(["a", "b"]).lock(),
                        1 => locks.multi_lock(["b", "a"]).lock(),
                        _ => locks.lock("b").lock(),
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                    guard.unwrap().unlock().unwrap();
                }
            });
        }
    });
    assert!(admin.is_free("a") && admin.is_free("b"));
}

#[test]
fn several_locks_are_waited_for_in_order_and_over_a_reconnect() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let held = locks.lock("b").lock().unwrap();
    let order = Arc::default();
    let both = locks.multi_lock(["a", "b"]);
    let first = in_turn(&order, 1, move || both.lock().unwrap());
    admin.await_waiters("a", 1);
    // Nobody holds "a", but the first in its queue comes first.
    let a = locks.lock("a");
    let second = in_turn(&order, 2, move || a.lock().unwrap());
    admin.await_waiters("a", 2);
    admin.cut_first_waiter("a");
    eventually("it is back", || {
        admin.waiters("a") == 2 && admin.info("a").matches("client").count() == 2
    });
    held.unlock().unwrap();
    first.join().unwrap();
    second.join().unwrap();
    assert_eq!(*order.lock().unwrap(), [1, 2]);
}

#[test]
fn with_one_of_several_locks_all_are_lost() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let lose: [fn(&Guard, &mut Admin) -> bool; 2] = [
        |guard, _| matches!(guard.renew(), Err(Error::NotHeld)),
        |guard, _| !guard.check().unwrap(),
    ];
    for lose in lose {
        let guard = locks.multi_lock(["a", "b"]).lock().unwrap();
        admin.run(&["DEL", "b"]);
        assert!(lose(&guard, &mut admin));
        assert!(guard.is_lost());
        // Long before its ttl of 30 s.
        assert!(admin.is_free("a"));
        assert!(matches!(guard.unlock(), Err(Error::NotHeld)));
    }
}

#[test]
fn a_grant_that_nobody_saw_and_that_ended_in_part_is_asked_for_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
    let mut admin = server.admin();
    proxy.lose_replies(1_000, "LOCK.MACQUIRE");
    let asking = thread::spawn(move || locks.multi_lock(["a", "b"]).lock().unwrap());
    eventually("it is granted", || !admin.is_free("b"));
    admin.run(&["DEL", "b"]);
    eventually("it asks again", || proxy.losses_left() < 998);
    proxy.lose_replies(0, "");
    let guard = asking.join().unwrap();
    assert!(guard.check().unwrap());
    guard.unlock().unwrap();
    assert!(admin.is_free("a") && admin.is_free("b"));
}

#[test]
fn a_command_runs_only_while_the_lock_is_held() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = LockClient::open(proxy.url(), Options::default()).unwrap();
    let mut admin = server.admin();
    let guard = locks.lock("k").lock().unwrap();
    assert!(guard.check().unwrap());
    let set = redis::cmd("SET").arg("x").arg(41).to_owned();
    if !admin.has_exec() {
        let refused = guard.exec::<()>(&set);
        let Err(Error::Unsupported(feature, _)) = refused else {
            unreachable!("{refused:?}")
        };
        assert!(feature.starts_with("LOCK.EXEC"));
        return;
    }
    guard.exec::<()>(&set).unwrap();
    let increment = redis::cmd("INCR").arg("x").to_owned();
    assert_eq!(guard.exec::<i64>(&increment).unwrap(), 42);
    let wrong = guard.exec::<()>(redis::cmd("LPUSH").arg("x").arg(1));
    assert!(matches!(wrong, Err(Error::Redis(_))));

    // A lost reply is not made up for: the command may have run.
    proxy.lose_replies(1, "LOCK.EXEC");
    let lost = guard.exec::<i64>(&increment);
    assert!(matches!(lost, Err(Error::Redis(_))), "{lost:?}");
    assert_eq!(admin.int(&["GET", "x"]), 43);
    assert!(guard.check().unwrap());

    admin.run(&["DEL", "k"]);
    let late = guard.exec::<i64>(&increment);
    assert!(matches!(late, Err(Error::NotHeld)), "{late:?}");
    assert_eq!(admin.int(&["GET", "x"]), 43);
    assert!(guard.is_lost() && !guard.check().unwrap());
}

#[test]
fn a_job_runs_once() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let (minute, least) = (ms(60_000), ms(1_200));
    let begin = Instant::now();
    let runs = AtomicUsize::new(0);
    let ran = locks.run_once("k", minute, least, |guard| {
        assert!(!guard.is_lost());
        let elsewhere = locks.run_once("k", minute, least, |_| runs.fetch_add(100, SeqCst));
        assert!(elsewhere.unwrap().is_none());
        runs.fetch_add(1, SeqCst)
    });
    assert_eq!(ran.unwrap(), Some(0));
    let again = locks.run_once("k", minute, least, |_| runs.fetch_add(100, SeqCst));
    assert!(again.unwrap().is_none());
    eventually("it is over", || admin.is_free("k"));
    assert!(begin.elapsed() > ms(1_190), "{:?}", begin.elapsed());
    let again = locks.run_once("k", minute, Duration::ZERO, |_| runs.fetch_add(1, SeqCst));
    assert_eq!(again.unwrap(), Some(1));
    assert!(admin.is_free("k"));
}

#[test]
fn a_job_that_panics_is_not_run_again_either() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let job = thread::spawn(move || {
        let _ = locks.run_once("k", ms(60_000), ms(30_000), |_| {
            std::panic::resume_unwind(Box::new("the job"))
        });
    });
    assert!(job.join().is_err());
    let left = admin.int(&["PTTL", "k"]);
    assert!((20_000..=30_000).contains(&left), "{left}");
}

#[test]
fn a_job_does_not_run_where_the_server_is_too_old() {
    let locks = LockClient::open(without_at_least(), Options::default()).unwrap();
    let ran = locks.run_once("k", ms(60_000), ms(1_000), |_| unreachable!());
    let Err(Error::Unsupported(feature, _)) = ran else {
        unreachable!("{ran:?}")
    };
    assert!(feature.contains("ATLEAST"));
}

#[test]
fn a_hold_lingers_after_its_connection_only_as_long_as_it_may() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let options = Options::default().linger(ms(3_000));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    let guards = [
        locks.lock("a").lock().unwrap(),
        locks.semaphore("b", 2).acquire().unwrap(),
        locks.multi_lock(["c", "d"]).lock().unwrap(),
    ];
    proxy.cut();
    for (guard, key) in guards.iter().zip(["a", "b", "d"]) {
        eventually("its end comes forward", || {
            admin.int(&["PTTL", key]) <= 3_000
        });
        guard.renew().unwrap();
        assert!(admin.int(&["PTTL", key]) > 20_000);
    }
    // A renewal has bound them to the new connection. This is the end of the process.
    proxy.close();
    let begin = Instant::now();
    for key in ["a", "b", "c", "d"] {
        eventually("it is free", || admin.is_free(key));
    }
    assert!(begin.elapsed() < ms(15_000), "{:?}", begin.elapsed());
    std::mem::forget(guards);
}

#[test]
fn a_short_linger_tells_of_losses_early() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    // A third of the ttl would be 10 s.
    let options = Options::default().ttl(ms(30_000)).linger(ms(3_000));
    let locks = LockClient::open(proxy.url(), options).unwrap();
    let mut admin = server.admin();
    let guard = locks.lock("k").lock().unwrap();
    let keep_alive = guard.keep_alive();
    proxy.cut();
    eventually("its end comes forward", || {
        admin.int(&["PTTL", "k"]) <= 3_000
    });
    eventually("it is renewed", || admin.int(&["PTTL", "k"]) > 20_000);
    assert!(!keep_alive.is_lost());
    let lost = Instant::now();
    assert_eq!(admin.int(&["DEL", "k"]), 1);
    eventually("it is told", || keep_alive.is_lost());
    assert!(lost.elapsed() < ms(6_000), "{:?}", lost.elapsed());
}
