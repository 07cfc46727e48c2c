//! Holds on a real server: how they are taken, renewed, converted, lost and given up. Also those of
//! several locks, under which commands and jobs run, and those of the fallback.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use redis_lock_client::{Error, Mode, Options, Result};

use super::common::{BOUND, Proxy, Server, counter, eventually, proxied};
use super::{is_told, ms, now, once, open};

#[test]
fn a_hold_is_converted_in_both_directions() {
    let (_server, proxy, mut admin) = proxied();
    let pages = open(proxy.url(), Options::default()).rwlock("page");
    let mut guard = now(pages.write()).unwrap();
    let fence = guard.fence();
    now(guard.downgrade()).unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Shared, fence));
    let mut other = now(pages.try_read()).unwrap().unwrap();
    assert!(!now(guard.try_upgrade()).unwrap());
    assert!(!now(guard.upgrade_timeout(ms(120))).unwrap());
    assert_eq!((guard.mode(), admin.waiters("page")), (Mode::Shared, 0));

    let upgrading = thread::spawn(move || now(guard.upgrade()).map(|()| guard));
    admin.await_waiters("page", 1);
    assert!(matches!(now(other.try_upgrade()), Err(Error::Deadlock(_))));
    now(other.unlock()).unwrap();
    let mut guard = upgrading.join().unwrap().unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Exclusive, fence));
    now(guard.upgrade()).unwrap();
    assert!(now(pages.try_read()).unwrap().is_none());
    now(guard.unlock()).unwrap();
    assert!(admin.is_free("page"));
}

#[test]
fn a_downgrade_without_an_answer_counts() {
    let (_server, proxy, mut admin) = proxied();
    let pages = open(proxy.url(), Options::default().reconnect(ms(0))).rwlock("page");
    let mut guard = now(pages.write()).unwrap();
    proxy.lose_replies(1_000, "RWLOCK.RLOCK");
    assert!(matches!(now(guard.downgrade()), Err(Error::Redis(_))));
    assert_eq!((guard.mode(), guard.is_lost()), (Mode::Shared, false));
    proxy.lose_replies(0, "RWLOCK.RLOCK");
    let before = admin.calls("rwlock.rlock");
    now(guard.downgrade()).unwrap();
    assert_eq!(admin.calls("rwlock.rlock"), before + 1);

    proxy.lose_replies(1_000, "RWLOCK.RLOCK");
    now(guard.upgrade()).unwrap();
    assert!(now(guard.downgrade()).is_err());
    proxy.lose_replies(0, "RWLOCK.RLOCK");
    let _other = now(pages.try_read()).unwrap().unwrap();
    assert!(!now(guard.try_upgrade()).unwrap());
    assert_eq!(guard.mode(), Mode::Shared);
}

#[test]
fn a_share_is_not_lost_while_no_new_grants_are_made() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default());
    let mut reader = now(locks.rwlock("a").read()).unwrap();
    let mut writer = now(locks.rwlock("b").write()).unwrap();
    admin.run(&["CONFIG", "SET", "lock.max-ttl", "60000"]);
    admin.run(&["CONFIG", "SET", "lock.guard", "failover"]);
    assert!(!now(reader.upgrade_timeout(ms(120))).unwrap());
    assert_eq!(admin.waiters("a"), 0);
    proxy.lose_replies(1, "RWLOCK.RLOCK");
    now(writer.downgrade()).unwrap();
    assert_eq!(proxy.faults().losses, 0);
    for (guard, key) in [(reader, "a"), (writer, "b")] {
        assert_eq!((guard.mode(), guard.is_lost()), (Mode::Shared, false));
        assert!(now(guard.check()).unwrap());
        now(guard.unlock()).unwrap();
        assert!(admin.is_free(key));
    }
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    let module = ["LOCK.ACQUIRE", "LOCK.RENEW", "LOCK.RELEASE"];
    let fallback = ["'SET'", "PEXPIRE", "'DEL'"];
    let servers = [Server::start(), Server::start_without_module()];
    for (server, commands) in servers.iter().zip([module, fallback]) {
        let proxy = Proxy::to(server.port);
        let lock = open(proxy.url(), Options::default().fallback(true)).lock("k");
        now(now(lock.lock()).unwrap().unlock()).unwrap();
        for of in commands {
            proxy.lose_replies(1, of);
            let guard = now(lock.try_lock()).unwrap().unwrap();
            now(guard.renew()).unwrap();
            now(guard.unlock()).unwrap();
            assert_eq!(proxy.faults().losses, 0, "{of}");
            assert_eq!(server.admin().int(&["EXISTS", "k"]), 0);
        }
    }
}

#[test]
fn a_server_that_was_always_silent_takes_no_longer_than_reconnect() {
    let server = Server::start();
    server.freeze();
    // The second one has to be answered before a connection is of use.
    let tries = ["", "/1"].map(|database| {
        let url = format!("{}{database}", server.url());
        thread::spawn(move || {
            let start = Instant::now();
            let tried = now(open(url, Options::default()).lock("k").try_lock());
            (tried.map(drop), start.elapsed())
        })
    });
    let tried = tries.map(|tried| tried.join().unwrap());
    server.thaw();
    for (silent, time) in tried {
        assert!(matches!(silent, Err(Error::Redis(_))), "{silent:?}");
        assert!(time >= ms(3_000) && time < ms(10_000), "{time:?}");
    }
}

#[test]
fn a_release_that_failed_can_be_repeated() {
    let (_server, proxy, mut admin) = proxied();
    let lock = open(proxy.url(), Options::default().reconnect(ms(0))).lock("k");
    // It was released, and nobody heard of it.
    let guard = now(lock.lock()).unwrap();
    proxy.lose_replies(1, "LOCK.RELEASE");
    assert!(matches!(now(guard.unlock()), Err(Error::Redis(_))));
    now(guard.unlock()).unwrap();
    assert!(matches!(now(guard.unlock()), Err(Error::NotHeld)));
    // It did not get there, and the drop repeats it.
    let guard = now(lock.lock()).unwrap();
    proxy.close();
    assert!(matches!(now(guard.unlock()), Err(Error::Redis(_))));
    assert!(!admin.is_free("k"));
    proxy.open();
    drop(guard);
    eventually("it is released", || admin.is_free("k"));
    // It was refused, so it was another who ended it.
    let guard = now(lock.lock()).unwrap();
    proxy.answer("LOCK.RELEASE", 1, "-NOPERM no rights\r\n");
    assert!(matches!(now(guard.unlock()), Err(Error::Redis(_))));
    admin.run(&["DEL", "k"]);
    assert!(matches!(now(guard.unlock()), Err(Error::NotHeld)));
    // Nor does a drop leave it for its ttl.
    let guard = now(lock.with_ttl(BOUND * 2).lock()).unwrap();
    proxy.answer("LOCK.RELEASE", 50, "-NOREPLICAS\r\n");
    drop(guard);
    eventually("it is released", || admin.is_free("k"));
    // Nor while the server is away for longer than a drop blocks.
    let lock = open(proxy.url(), Options::default().reconnect(BOUND)).lock("k");
    let guard = now(lock.with_ttl(BOUND * 2).lock()).unwrap();
    proxy.close();
    drop(guard);
    proxy.open();
    eventually("it is released", || admin.is_free("k"));
}

/// Whoever renews is told by its own clock. That the server tells of a loss, the scenarios say.
#[test]
fn a_loss_is_told_once_and_in_time_when_the_server_is_silent() {
    let lasting = Options::default().ttl(ms(3_000));
    let lingering = Options::default().linger(ms(2_000));
    for options in [lasting, lingering] {
        let server = Server::start();
        let (told, lost) = mpsc::channel();
        let options = options.on_lost(move |lost| {
            let _ = told.send((lost.key.clone(), lost.fence, Instant::now()));
        });
        let guard = now(open(server.url(), options).lock("k").lock()).unwrap();
        let keep_alive = guard.keep_alive();
        let begin = guard.valid_until();
        eventually("two renewals", || guard.valid_until() > begin + ms(700));
        assert!(!keep_alive.is_lost() && lost.try_recv().is_err());
        server.freeze();
        assert!(is_told(&keep_alive) && keep_alive.is_lost() && guard.is_lost());
        let (key, fence, when) = lost.recv_timeout(BOUND).unwrap();
        assert_eq!((key.as_slice(), fence), (&b"k"[..], guard.fence()));
        assert!(when >= guard.valid_until(), "before the end");
        assert!(lost.try_recv().is_err());
        server.thaw();
    }
}

/// An answer in between begins the time anew for which the server may be away.
#[test]
fn a_wait_outlasts_connections_that_are_lost_far_apart() {
    let (_server, proxy, mut admin) = proxied();
    let options = Options::default().slice(ms(60_000)).reconnect(ms(1_000));
    let lock = open(proxy.url(), options).lock("k");
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let waiting = thread::spawn(move || now(now(lock.lock()).unwrap().unlock()).unwrap());
    for _ in 0..2 {
        admin.await_waiters("k", 1);
        let answered = admin.calls("lock.acquire");
        proxy.cut();
        thread::sleep(ms(1_200));
        eventually("an answer", || admin.calls("lock.acquire") > answered);
    }
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    waiting.join().unwrap();
}

#[test]
fn permits_and_several_locks_have_no_conversion() {
    let (_server, proxy, _) = proxied();
    let locks = open(proxy.url(), Options::default());
    let mut permit = now(locks.semaphore("k", 2).acquire()).unwrap();
    assert_eq!((permit.key(), permit.mode()), (&b"k"[..], Mode::Counted));
    assert!(matches!(now(permit.upgrade()), Err(Error::NoConversion)));
    assert!(matches!(now(permit.downgrade()), Err(Error::NoConversion)));
    let mut guard = now(locks.multi_lock(["a", "b"]).lock()).unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(matches!(now(guard.downgrade()), Err(Error::NoConversion)));
    // A part that is held is not this attempt's.
    let part = now(locks.lock("c").with_token("t").lock()).unwrap();
    let refused = now(locks.multi_lock(["c", "d"]).with_token("t").try_lock());
    assert!(matches!(refused, Err(Error::Redis(_))), "{refused:?}");
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
    // The renewals do not bind it meanwhile, and it lasts.
    thread::sleep(ms(1_200));
    renew_twice("shared");
    now(other.unlock()).unwrap();
    let mut guard = upgrading.join().unwrap().unwrap();
    renew_twice("exclusive");
    now(guard.downgrade()).unwrap();
    let _other = now(pages.try_read()).unwrap().unwrap();
    renew_twice("shared");
    assert!(!keep_alive.is_lost());
}

#[track_caller]
fn is_missing<T>(result: Result<T>, part: &str) {
    let error = result.err().expect("it is missing");
    assert!(matches!(error, Error::ModuleMissing(_)), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

/// What else it lacks is in the scenarios, for a client that has chosen it before.
#[test]
fn the_fallback_has_no_more_than_a_lock_and_says_so_once() {
    let server = Server::start_without_module();
    let (mut admin, part) = (server.admin(), "not available in the fallback");
    let (said, count) = counter::<str>();
    let options = Options::default().fallback(true).on_fallback(count);
    let locks = open(server.url(), options);
    is_missing(now(locks.multi_lock(["k", "l"]).lock()), part);
    let mut guard = now(locks.rwlock("k").with_ttl(ms(60_000)).write()).unwrap();
    assert!(admin.int(&["PTTL", "k"]) > 50_000);
    is_missing(now(guard.exec::<()>(&redis::cmd("PING"))), part);
    is_missing(now(guard.downgrade()), part);
    assert_eq!(said.load(SeqCst), 1);
    // Another type over the key is somebody else's.
    admin.run(&["DEL", "k"]);
    admin.run(&["HSET", "k", "f", "1"]);
    assert!(now(locks.lock("k").try_lock()).unwrap().is_none());
    assert!(!now(guard.check()).unwrap());
    assert!(matches!(now(guard.renew()), Err(Error::NotHeld)));
    assert!(matches!(now(guard.unlock()), Err(Error::NotHeld)));
    assert_eq!(admin.int(&["DEL", "k"]), 1);
}

/// The choice is made once, so that the two ways of locking never meet in one client.
#[test]
fn the_fallback_is_chosen_once_and_not_where_the_module_is() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (said, count) = counter::<str>();
    let options = Options::default().fallback(true).on_fallback(count);
    let locks = open(proxy.url(), options);
    let guard = now(locks.lock("k").lock()).unwrap();
    assert!(guard.fence() > 0);
    now(guard.unlock()).unwrap();
    // As if the module went: the client does not change its mind.
    let unknown = "-ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'k'\r\n";
    proxy.answer("LOCK.ACQUIRE", usize::MAX, unknown);
    is_missing(now(locks.lock("k").lock()), "");
    assert_eq!(said.load(SeqCst), 0);
}
