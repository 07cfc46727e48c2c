//! One lock on a real server: how it is taken, renewed, converted, lost and given up.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use redis_lock_client::{Error, Mode, Options};

use super::common::{BOUND, Proxy, Server, eventually, proxied};
use super::{is_told, ms, now, open};

#[test]
fn a_dropped_guard_releases() {
    let (_server, proxy, mut admin) = proxied();
    let lock = open(proxy.url(), Options::default()).lock("a key");
    let guard = now(lock.lock()).unwrap();
    assert_eq!((lock.key(), guard.key()), (&b"a key"[..], &b"a key"[..]));
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(!guard.is_lost() && guard.valid_until() > Instant::now() + ms(20_000));
    let token = guard.token().to_vec();
    drop(guard);
    eventually("it is free", || admin.is_free("a key"));
    assert!(now(lock.try_lock()).unwrap().unwrap().token() != token);
}

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

/// Nor does a grant that nobody saw: see the job that never ran.
#[test]
fn giving_up_leaves_no_hold_behind() {
    let (_server, proxy, mut admin) = proxied();
    let lock = open(proxy.url(), Options::default().reconnect(ms(300))).lock("k");
    // A wait that is cut for longer than the client is willing to ask again.
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let waiting = thread::spawn(move || now(lock.lock()).map(drop));
    admin.await_waiters("k", 1);
    proxy.close();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Redis(_))));
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    eventually("the lock is free", || admin.is_free("k"));
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
