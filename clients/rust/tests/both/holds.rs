//! One lock on a real server: how it is taken, renewed, converted, lost and given up.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use redis_lock_client::{Error, Mode, Options};

use super::common::{BOUND, Proxy, Server, eventually, free_port};
use super::{is_told, library, ms, now, open};

fn locks(server: &Server) -> library::LockClient {
    open(server.url(), Options::default())
}

#[test]
fn a_dropped_guard_releases() {
    let server = Server::start();
    let (lock, mut admin) = (locks(&server).lock("a key"), server.admin());
    assert_eq!(lock.key(), b"a key");
    let guard = now(lock.lock()).unwrap();
    assert_eq!(
        (guard.key(), guard.mode()),
        (&b"a key"[..], Mode::Exclusive)
    );
    assert!(!guard.is_lost() && guard.valid_until() > Instant::now() + ms(20_000));
    let token = guard.token().to_vec();
    drop(guard);
    eventually("it is free", || admin.is_free("a key"));
    assert!(now(lock.try_lock()).unwrap().unwrap().token() != token);
}

#[test]
fn keys_and_tokens_are_any_bytes() {
    let server = Server::start();
    let lock = locks(&server)
        .lock(b"\0 a\r\n\xff")
        .with_token(b"t\0\r\n \xfe");
    let guard = now(lock.try_lock()).unwrap().unwrap();
    assert_eq!(guard.token(), b"t\0\r\n \xfe");
    now(guard.renew()).unwrap();
    // The same token is the same owner.
    let again = now(lock.try_lock()).unwrap().unwrap();
    assert_eq!(again.fence(), guard.fence());
    now(guard.unlock()).unwrap();
    assert!(matches!(now(again.unlock()), Err(Error::NotHeld)));
}

#[test]
fn a_hold_is_converted_in_both_directions() {
    let server = Server::start();
    let (pages, mut admin) = (locks(&server).rwlock("page"), server.admin());
    let mut guard = now(pages.write()).unwrap();
    let fence = guard.fence();
    now(guard.downgrade()).unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Shared, fence));
    let mut other = now(pages.try_read()).unwrap().unwrap();
    assert!(!now(guard.try_upgrade()).unwrap());
    assert!(!now(guard.upgrade_timeout(ms(120))).unwrap());
    assert_eq!((guard.mode(), admin.waiters("page")), (Mode::Shared, 0));

    let upgrading = thread::spawn(move || {
        now(guard.upgrade()).unwrap();
        guard
    });
    admin.await_waiters("page", 1);
    assert!(matches!(now(other.try_upgrade()), Err(Error::Deadlock(_))));
    now(other.unlock()).unwrap();
    let mut guard = upgrading.join().unwrap();
    assert_eq!((guard.mode(), guard.fence()), (Mode::Exclusive, fence));
    now(guard.upgrade()).unwrap();
    assert!(now(pages.try_read()).unwrap().is_none());
    now(guard.unlock()).unwrap();
    assert!(admin.is_free("page"));
}

#[test]
fn a_downgrade_without_an_answer_counts() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let pages = open(proxy.url(), Options::default().reconnect(ms(0))).rwlock("page");
    let mut admin = server.admin();
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
    let other = now(pages.try_read()).unwrap().unwrap();
    assert!(!now(guard.try_upgrade()).unwrap());
    assert_eq!(guard.mode(), Mode::Shared);
    drop(other);
}

#[test]
fn a_share_is_not_lost_while_no_new_grants_are_made() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (locks, mut admin) = (open(proxy.url(), Options::default()), server.admin());
    let mut reader = now(locks.rwlock("a").read()).unwrap();
    let mut writer = now(locks.rwlock("b").write()).unwrap();
    admin.run(&["CONFIG", "SET", "lock.max-ttl", "60000"]);
    admin.run(&["CONFIG", "SET", "lock.guard", "failover"]);
    assert!(!now(reader.upgrade_timeout(ms(120))).unwrap());
    assert_eq!(admin.waiters("a"), 0);
    proxy.lose_replies(1, "RWLOCK.RLOCK");
    now(writer.downgrade()).unwrap();
    assert_eq!(proxy.losses_left(), 0);
    for (guard, key) in [(reader, "a"), (writer, "b")] {
        assert_eq!((guard.mode(), guard.is_lost()), (Mode::Shared, false));
        assert!(now(guard.check()).unwrap());
        now(guard.unlock()).unwrap();
        assert!(admin.is_free(key));
    }
}

#[test]
fn a_lost_hold_is_told() {
    let server = Server::start();
    let (locks, mut admin) = (locks(&server), server.admin());
    // The guard's time is over before the server's.
    let guard = now(locks.lock("k").with_ttl(ms(50)).lock()).unwrap();
    eventually("the time of the hold passes", || admin.is_free("k"));
    assert!(guard.is_lost());
    assert!(matches!(now(guard.unlock()), Err(Error::NotHeld)));

    let mut page = now(locks.rwlock("k").write()).unwrap();
    admin.run(&["DEL", "k"]);
    admin.run(&["LOCK.ACQUIRE", "k", "another", "10000"]);
    assert!(matches!(now(page.downgrade()), Err(Error::NotHeld)));
    assert!(page.is_lost());
}

#[test]
fn extend_sets_the_deadline() {
    let server = Server::start();
    let mut admin = server.admin();
    let guard = now(locks(&server).lock("k").lock()).unwrap();
    now(guard.extend(ms(500_000))).unwrap();
    assert!(guard.valid_until() > Instant::now() + ms(400_000));
    assert!(admin.int(&["PTTL", "k"]) > 400_000);
    now(guard.extend(ms(60_000))).unwrap();
    assert!(guard.valid_until() < Instant::now() + ms(60_001));
}

/// A client whose holds of 600 ms tell when they are lost.
fn telling(server: &Server) -> (library::LockClient, mpsc::Receiver<(Vec<u8>, u64, Instant)>) {
    let (told, lost) = mpsc::channel();
    let options = Options::default().ttl(ms(600)).on_lost(move |lost| {
        let _ = told.send((lost.key.clone(), lost.fence, Instant::now()));
    });
    (open(server.url(), options), lost)
}

#[test]
fn keep_alive_renews_and_says_when_it_is_lost() {
    let server = Server::start();
    let (locks, lost) = telling(&server);
    let mut admin = server.admin();
    let guard = now(locks.lock("k").lock()).unwrap();
    let keep_alive = guard.keep_alive();
    let begin = guard.valid_until();
    eventually("three renewals", || guard.valid_until() > begin + ms(600));
    assert!(!keep_alive.is_lost() && lost.try_recv().is_err());
    admin.run(&["DEL", "k"]);
    assert!(is_told(&keep_alive) && keep_alive.is_lost() && guard.is_lost());
    let (key, fence, _) = lost.recv_timeout(BOUND).unwrap();
    assert_eq!((key.as_slice(), fence), (&b"k"[..], guard.fence()));
    assert!(lost.try_recv().is_err());
}

#[test]
fn keep_alive_begins_in_time_for_what_is_left() {
    let server = Server::start();
    let guard = now(locks(&server).lock("k").lock()).unwrap();
    // Less than a third of the ttl.
    now(guard.extend(ms(2_000))).unwrap();
    let keep_alive = guard.keep_alive();
    let is_renewed = || {
        assert!(!keep_alive.is_lost());
        guard.valid_until() > Instant::now() + ms(20_000)
    };
    eventually("it is renewed", is_renewed);
    // It sleeps now, for longer than this.
    now(guard.extend(ms(2_000))).unwrap();
    eventually("it is renewed", is_renewed);
}

#[test]
fn keep_alive_says_lost_when_the_server_is_silent() {
    let server = Server::start();
    let (locks, lost) = telling(&server);
    let mut admin = server.admin();
    let guard = now(locks.lock("k").lock()).unwrap();
    let keep_alive = guard.keep_alive();
    server.freeze();
    let told = lost.recv_timeout(BOUND);
    let end = guard.valid_until();
    server.thaw();
    assert!(told.unwrap().2 < end + ms(2_000));
    assert!(is_told(&keep_alive));
    // A renewal without an answer may have reached the server.
    eventually("it is released", || admin.calls("lock.release") > 0);
}

#[test]
fn the_end_of_a_lease_is_told_in_time_when_the_server_is_silent() {
    let server = Server::start();
    let (told, lost) = mpsc::channel();
    // An answer to a renewal may take a second, which is more than what is left at the end.
    let options = Options::default().ttl(ms(3_000)).on_lost(move |_| {
        let _ = told.send(Instant::now());
    });
    let guard = now(open(server.url(), options).lock("k").lock()).unwrap();
    let keep_alive = guard.keep_alive();
    server.freeze();
    assert!(is_told(&keep_alive));
    let heard = Instant::now();
    let told = lost.recv_timeout(BOUND);
    server.thaw();
    let end = guard.valid_until();
    for (who, when) in [("waits", heard), ("on_lost", told.unwrap())] {
        assert!(when >= end, "{who} is told before the end");
        assert!(when < end + ms(500), "{who}: {:?}", when - end);
    }
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let lock = open(proxy.url(), Options::default()).lock("k");
    let mut admin = server.admin();
    proxy.lose_replies(1, "LOCK.ACQUIRE");
    let guard = now(lock.lock()).unwrap();
    assert_eq!(proxy.losses_left(), 0);
    assert!(admin.info("k").contains(&guard.fence().to_string()));
    proxy.lose_replies(1, "LOCK.RENEW");
    now(guard.renew()).unwrap();
    assert_eq!(proxy.losses_left(), 0);
    proxy.lose_replies(1, "LOCK.RELEASE");
    now(guard.unlock()).unwrap();
    assert_eq!(proxy.losses_left(), 0);
    assert!(admin.is_free("k"));
}

#[test]
fn slices_are_one_wait() {
    let server = Server::start();
    let lock = open(server.url(), Options::default().slice(ms(20))).lock("k");
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let start = Instant::now();
    assert!(now(lock.lock_timeout(ms(150))).unwrap().is_none());
    assert!(start.elapsed() >= ms(150) && start.elapsed() < ms(2_000));
    let before = admin.calls("lock.acquire");
    let waiting = thread::spawn(move || now(lock.lock()));
    eventually("it has asked again", || {
        admin.calls("lock.acquire") > before + 4
    });
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    now(waiting.join().unwrap().unwrap().unlock()).unwrap();
}

#[test]
fn giving_up_leaves_no_hold_behind() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let lock = open(proxy.url(), Options::default().reconnect(ms(300))).lock("k");
    let mut admin = server.admin();
    // The grant is made, and neither it nor the answers to the next tries arrive.
    proxy.lose_replies(1_000, "LOCK.ACQUIRE");
    assert!(matches!(now(lock.try_lock()), Err(Error::Redis(_))));
    assert!(proxy.losses_left() < 1_000);
    proxy.lose_replies(0, "LOCK.ACQUIRE");
    assert!(admin.is_free("k"));

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
fn giving_up_a_silent_server_takes_no_second_time() {
    let server = Server::start();
    let options = Options::default().ttl(ms(900)).reconnect(ms(6_000));
    let lock = open(server.url(), options).lock("k");
    now(now(lock.lock()).unwrap().unlock()).unwrap();
    server.freeze();
    let start = Instant::now();
    let silent = now(lock.try_lock());
    let time = start.elapsed();
    server.thaw();
    assert!(matches!(silent, Err(Error::Redis(_))), "{silent:?}");
    assert!(time > ms(6_000) && time < ms(10_500), "{time:?}");
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
        assert!(time >= ms(3_000) && time < ms(5_000), "{time:?}");
    }
}

#[test]
fn errors_are_told_apart() {
    let server = Server::start();
    let token = now(locks(&server).lock("k").with_token("").try_lock());
    assert!(matches!(token, Err(Error::Redis(_))), "{token:?}");
    let nowhere = format!("redis://127.0.0.1:{}", free_port());
    let gone = open(nowhere, Options::default().reconnect(ms(100)));
    let start = Instant::now();
    assert!(matches!(now(gone.lock("k").lock()), Err(Error::Redis(_))));
    assert!(start.elapsed() < ms(2_000));
}

/// Of one client, which has fewer connections that wait than that.
#[test]
fn threads_take_turns() {
    let server = Server::start();
    let options = Options::default().max_waiting_connections(2);
    let locks = open(server.url(), options);
    let (inside, fences) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let guard = now(locks.lock("k").lock()).unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    fences.lock().unwrap().push(guard.fence());
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    now(guard.unlock()).unwrap();
                }
            });
        }
    });
    let fences = fences.lock().unwrap();
    assert!(fences.len() == 80 && fences.is_sorted());
}

/// Eight clients that block for ever take turns, and hold so long that all of them outlast a slice.
#[test]
fn slices_keep_the_place_beside_raw_clients() {
    let server = Server::start();
    let locks = open(server.url(), Options::default().slice(ms(100)));
    let mut admin = server.admin();
    let (grants, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let raw = [0, 1, 2, 3, 4, 5, 6, 7].map(|client: u8| {
        let (mut admin, grants, over) = (server.admin(), grants.clone(), over.clone());
        thread::spawn(move || {
            let token = client.to_string();
            while over.load(SeqCst) == 0 {
                admin.run(&["LOCK.ACQUIRE", "k", &token, "10000", "BLOCK", "0"]);
                grants.fetch_add(1, SeqCst);
                thread::sleep(ms(20));
                admin.run(&["LOCK.RELEASE", "k", &token]);
            }
        })
    });
    admin.await_waiters("k", 7);
    let before = grants.load(SeqCst);
    let guard = now(locks.lock("k").lock()).unwrap();
    let others = grants.load(SeqCst) - before;
    over.store(1, SeqCst);
    now(guard.unlock()).unwrap();
    raw.into_iter().for_each(|raw| raw.join().unwrap());
    assert!(others <= 10, "{others} others were granted before");
}

#[test]
fn a_dead_waiter_costs_its_grace_at_most() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let options = Options::default().grace(ms(500)).reconnect(ms(50));
    let locks = open(proxy.url(), options);
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
    let dead = thread::spawn(move || now(locks.lock("k").lock()).map(drop));
    admin.await_waiters("k", 1);
    let mut behind = server.admin();
    let next = thread::spawn(move || {
        behind.run(&["LOCK.ACQUIRE", "k", "next", "10000", "BLOCK", "10000"]);
        Instant::now()
    });
    admin.await_waiters("k", 2);
    let died = Instant::now();
    proxy.close();
    // A grant that is published to a connection before its end is seen lasts for its ttl.
    eventually("nobody listens", || admin.clients("sub=1") == 0);
    admin.run(&["LOCK.RELEASE", "k", "holder"]);
    let late = next.join().unwrap() - died;
    assert!(late < ms(1_500), "{late:?}");
    assert!(dead.join().unwrap().is_err());
}
