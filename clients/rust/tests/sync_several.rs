//! Semaphores, several locks as one, guarded commands, jobs that run once, and linger: the blocking
//! client, on a real server.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Proxy, Server, eventually, without_at_least};
use redis_lock_client::sync::LockClient;
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
fn permits_and_several_locks_have_no_conversion() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let mut permit = locks.semaphore("k", 2).acquire().unwrap();
    assert_eq!((permit.key(), permit.mode()), (&b"k"[..], Mode::Counted));
    assert!(matches!(permit.upgrade(), Err(Error::NoConversion)));
    assert!(matches!(permit.downgrade(), Err(Error::NoConversion)));
    let none = locks.semaphore("k", 0).try_acquire();
    assert!(matches!(none, Err(Error::Redis(_))));

    let mut guard = locks.multi_lock(["a", "b"]).lock().unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(matches!(guard.downgrade(), Err(Error::NoConversion)));
    guard.extend(ms(500_000)).unwrap();
    assert!(admin.int(&["PTTL", "a"]) > 400_000 && admin.int(&["PTTL", "b"]) > 400_000);
    for wrong in [&["a", "a"][..], &[]] {
        let refused = locks.multi_lock(wrong).try_lock();
        assert!(matches!(refused, Err(Error::Redis(_))), "{refused:?}");
    }
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
fn a_guarded_command_is_not_sent_twice() {
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
    let wrong = guard.exec::<()>(redis::cmd("LPUSH").arg("x").arg(1));
    assert!(matches!(wrong, Err(Error::Redis(_))));

    // A lost reply is not made up for: the command may have run.
    proxy.lose_replies(1, "LOCK.EXEC");
    let lost = guard.exec::<i64>(&increment);
    assert!(matches!(lost, Err(Error::Redis(_))), "{lost:?}");
    assert_eq!(admin.int(&["GET", "x"]), 42);
    assert!(guard.check().unwrap());
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
