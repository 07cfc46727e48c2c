//! Semaphores, several locks as one, guarded commands, jobs that run once, and linger.

use std::thread;

use redis_lock_client::{Error, Mode, Options};

use super::common::{eventually, proxied};
use super::{ms, now, once, open};

#[test]
fn permits_and_several_locks_have_no_conversion() {
    let (_server, proxy, _) = proxied();
    let locks = open(proxy.url(), Options::default());
    let mut permit = now(locks.semaphore("k", 2).acquire()).unwrap();
    assert_eq!((permit.key(), permit.mode()), (&b"k"[..], Mode::Counted));
    assert!(matches!(now(permit.upgrade()), Err(Error::NoConversion)));
    assert!(matches!(now(permit.downgrade()), Err(Error::NoConversion)));
    let none = now(locks.semaphore("k", 0).try_acquire());
    assert!(matches!(none, Err(Error::Redis(_))));

    let mut guard = now(locks.multi_lock(["a", "b"]).lock()).unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(matches!(now(guard.downgrade()), Err(Error::NoConversion)));
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
    let (_server, proxy, mut admin) = proxied();
    let both = open(proxy.url(), Options::default()).multi_lock(["a", "b"]);
    proxy.lose_replies(1_000, "LOCK.MACQUIRE");
    let asking = thread::spawn(move || now(both.lock()).unwrap());
    eventually("it is granted", || !admin.is_free("b"));
    admin.run(&["DEL", "b"]);
    eventually("it asks again", || proxy.faults().losses < 998);
    proxy.lose_replies(0, "");
    let guard = asking.join().unwrap();
    assert!(now(guard.check()).unwrap());
    now(guard.unlock()).unwrap();
    assert!(admin.is_free("a") && admin.is_free("b"));
}

/// As by a guard, while a token holds them all by a grant that nobody saw.
#[test]
fn one_that_is_told_no_at_once_pauses() {
    let (_server, proxy, _) = proxied();
    let both = open(proxy.url(), Options::default()).multi_lock(["a", "b"]);
    proxy.answer("LOCK.MACQUIRE", usize::MAX, "$-1\r\n");
    assert!(now(both.lock_timeout(ms(1_000))).unwrap().is_none());
    let asked = usize::MAX - proxy.faults().fakes;
    assert!(asked > 2 && asked < 30, "{asked} times");
}

#[test]
fn a_guarded_command_is_not_sent_twice() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default());
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
fn a_job_that_never_ran_keeps_no_lock() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default().reconnect(ms(300)));
    // The grant is made, and neither it nor the answers to the next tries arrive.
    proxy.lose_replies(1_000, "LOCK.ACQUIRE");
    let never = once(&locks, ("k", 60_000, 30_000), || panic!("it ran"));
    assert!(matches!(never, Err::<Option<()>, _>(Error::Redis(_))));
    assert!(proxy.faults().losses < 1_000);
    assert!(admin.is_free("k"));
}

/// One that waited is bound as well.
#[test]
fn a_hold_that_waited_ends_with_its_connection() {
    let (_server, proxy, mut admin) = proxied();
    let lock = open(proxy.url(), Options::default().linger(ms(900))).lock("k");
    let (held, waits) = (now(lock.lock()).unwrap(), lock.clone());
    let waiting = thread::spawn(move || now(waits.lock()).unwrap());
    admin.await_waiters("k", 1);
    now(held.unlock()).unwrap();
    let _waited = waiting.join().unwrap();
    proxy.cut();
    eventually("it ends", || admin.is_free("k"));
}

#[test]
fn a_renewal_binds_a_hold_in_the_mode_that_it_has_by_now() {
    let (server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default().linger(ms(900)));
    // The first of two renewals has been bound when the second is sent.
    let mut renew_twice = |mode: &str| {
        let before = admin.calls("lock.renew");
        eventually("two renewals", || admin.calls("lock.renew") >= before + 2);
        assert!(admin.info("page").contains(mode), "no longer {mode}");
    };
    let pages = locks.rwlock("page");
    let (mut guard, other) = (now(pages.read()).unwrap(), now(pages.read()).unwrap());
    let keep_alive = guard.keep_alive();
    let upgrading = thread::spawn(move || now(guard.upgrade()).map(|()| guard));
    server.admin().await_waiters("page", 1);
    renew_twice("shared");
    now(other.unlock()).unwrap();
    let mut guard = upgrading.join().unwrap().unwrap();
    renew_twice("exclusive");
    now(guard.downgrade()).unwrap();
    let _other = now(pages.try_read()).unwrap().unwrap();
    renew_twice("shared");
    assert!(!keep_alive.is_lost());
}
