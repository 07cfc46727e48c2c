//! Semaphores, several locks as one, guarded commands, jobs that run once, and linger.

use std::thread;

use redis_lock_client::{Error, Mode, Options};

use super::common::{Proxy, Server, eventually};
use super::{library, ms, now, once, open};

fn locks(server: &Server) -> library::LockClient {
    open(server.url(), Options::default())
}

#[test]
fn permits_and_several_locks_have_no_conversion() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let mut permit = now(locks.semaphore("k", 2).acquire()).unwrap();
    assert_eq!((permit.key(), permit.mode()), (&b"k"[..], Mode::Counted));
    assert!(matches!(now(permit.upgrade()), Err(Error::NoConversion)));
    assert!(matches!(now(permit.downgrade()), Err(Error::NoConversion)));
    let none = now(locks.semaphore("k", 0).try_acquire());
    assert!(matches!(none, Err(Error::Redis(_))));

    let mut guard = now(locks.multi_lock(["a", "b"]).lock()).unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(matches!(now(guard.downgrade()), Err(Error::NoConversion)));
    now(guard.extend(ms(500_000))).unwrap();
    assert!(admin.int(&["PTTL", "a"]) > 400_000 && admin.int(&["PTTL", "b"]) > 400_000);
    // A part that is held is not this attempt's.
    let part = now(locks.lock("c").with_token("t").lock()).unwrap();
    for wrong in [&["a", "a"][..], &[], &["c", "d"]] {
        let refused = now(locks.multi_lock(wrong).with_token("t").try_lock());
        assert!(matches!(refused, Err(Error::Redis(_))), "{refused:?}");
    }
    now(part.unlock()).unwrap();
}

#[test]
fn a_grant_that_nobody_saw_and_that_ended_in_part_is_asked_for_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let both = open(proxy.url(), Options::default()).multi_lock(["a", "b"]);
    let mut admin = server.admin();
    proxy.lose_replies(1_000, "LOCK.MACQUIRE");
    let asking = thread::spawn(move || now(both.lock()).unwrap());
    eventually("it is granted", || !admin.is_free("b"));
    admin.run(&["DEL", "b"]);
    eventually("it asks again", || proxy.losses_left() < 998);
    proxy.lose_replies(0, "");
    let guard = asking.join().unwrap();
    assert!(now(guard.check()).unwrap());
    now(guard.unlock()).unwrap();
    assert!(admin.is_free("a") && admin.is_free("b"));
}

/// As by a guard, while a token holds them all by a grant that nobody saw.
#[test]
fn one_that_is_told_no_at_once_pauses() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let both = open(proxy.url(), Options::default()).multi_lock(["a", "b"]);
    proxy.answer("LOCK.MACQUIRE", usize::MAX, "$-1\r\n");
    assert!(now(both.lock_timeout(ms(1_000))).unwrap().is_none());
    let asked = usize::MAX - proxy.fakes_left();
    assert!(asked > 2 && asked < 30, "{asked} times");
}

#[test]
fn a_guarded_command_is_not_sent_twice() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = open(proxy.url(), Options::default());
    let mut admin = server.admin();
    let guard = now(locks.lock("k").lock()).unwrap();
    let set = redis::cmd("SET").arg("x").arg(41).to_owned();
    now(guard.exec::<()>(&set)).unwrap();
    for wrong in ["LPUSH", "JSON.SET"] {
        let refused = now(guard.exec::<()>(redis::cmd(wrong).arg("x").arg("$").arg(1)));
        assert!(matches!(refused, Err(Error::Redis(_))), "{refused:?}");
    }

    // A lost reply is not made up for: the command may have run.
    proxy.lose_replies(1, "LOCK.EXEC");
    let lost = now(guard.exec::<i64>(redis::cmd("INCR").arg("x")));
    assert!(matches!(lost, Err(Error::Redis(_))), "{lost:?}");
    assert_eq!(admin.int(&["GET", "x"]), 42);
    assert!(now(guard.check()).unwrap());
}

#[test]
fn a_job_that_panics_is_not_run_again_either() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    let job = thread::spawn(move || {
        let panics = || -> () { std::panic::resume_unwind(Box::new("the job")) };
        let _ = once(&locks, ("k", 60_000, 30_000), panics);
    });
    assert!(job.join().is_err());
    eventually("it is released", || admin.int(&["PTTL", "k"]) <= 30_000);
    assert!(admin.int(&["PTTL", "k"]) > 15_000);
}

#[test]
fn a_job_that_never_ran_keeps_no_lock() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = open(proxy.url(), Options::default().reconnect(ms(300)));
    // The grant is made, and neither it nor the answers to the next tries arrive.
    proxy.lose_replies(1_000, "LOCK.ACQUIRE");
    let never = once(&locks, ("k", 60_000, 30_000), || panic!("it ran"));
    assert!(matches!(never, Err::<Option<()>, _>(Error::Redis(_))));
    assert!(proxy.losses_left() < 1_000);
    assert!(server.admin().is_free("k"));
}

#[test]
fn a_renewal_binds_a_hold_in_the_mode_that_it_has_by_now() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = open(proxy.url(), Options::default().linger(ms(900)));
    let mut admin = server.admin();
    // The first of two renewals has been bound when the second is sent.
    let mut renew_twice = |mode: &str| {
        let before = admin.calls("lock.renew");
        eventually("it is renewed twice", || {
            admin.calls("lock.renew") >= before + 2
        });
        assert!(admin.info("page").contains(mode), "no longer {mode}");
    };
    // One that waited is bound as well.
    let (held, lock) = (now(locks.lock("k").lock()).unwrap(), locks.lock("k"));
    let waiting = thread::spawn(move || now(lock.lock()).unwrap());
    server.admin().await_waiters("k", 1);
    now(held.unlock()).unwrap();
    let waited = waiting.join().unwrap();
    proxy.cut();
    eventually("it ends with its connection", || {
        server.admin().is_free("k")
    });
    drop(waited);

    let pages = locks.rwlock("page");
    let (mut guard, other) = (now(pages.read()).unwrap(), now(pages.read()).unwrap());
    let keep_alive = guard.keep_alive();
    let upgrading = thread::spawn(move || {
        now(guard.upgrade()).unwrap();
        guard
    });
    server.admin().await_waiters("page", 1);
    renew_twice("shared");
    now(other.unlock()).unwrap();
    let mut guard = upgrading.join().unwrap();
    renew_twice("exclusive");
    now(guard.downgrade()).unwrap();
    let other = now(pages.try_read()).unwrap().unwrap();
    renew_twice("shared");
    assert!(!keep_alive.is_lost());
    now(guard.unlock()).unwrap();
    now(other.unlock()).unwrap();
}
