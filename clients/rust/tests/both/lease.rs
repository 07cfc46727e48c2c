//! How long a hold lasts by the client's clock, and what the server says to that.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, sleep};
use std::time::Instant;

use redis_lock_client::{Error, Options};

use super::common::{Proxy, Server, counter, eventually};
use super::{LISTENS, is_told, ms, now, open};

const TRY_AGAIN: &str = "-TRYAGAIN not enough servers have confirmed it\r\n";
const ALWAYS: usize = usize::MAX;

/// A short ttl would be over on a busy machine.
fn options() -> Options {
    Options::default().ttl(ms(2_000))
}

fn is_too_long(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::TtlTooLong(_)) && text.contains("with_ttl") && text.contains("max-ttl")
}

#[test]
fn a_lease_counts_from_the_sending_less_the_drift() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = open(proxy.url(), options());
    let guard = now(locks.lock("a").lock()).unwrap();
    proxy.delay_replies(200);
    let sent = Instant::now();
    now(guard.extend(ms(100_000))).unwrap();
    let early = guard.valid_until() - sent;
    assert!(early >= ms(98_998) && early < ms(99_150), "{early:?}");

    // A request that shortens it counts without an answer, too.
    proxy.delay_replies(0);
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    now(guard.extend(ms(500))).unwrap_err();
    assert!(guard.is_lost());
}

#[test]
fn a_lease_that_is_over_stays_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let mut admin = server.admin();
    let lock = open(proxy.url(), options()).lock("a").with_token("t");
    let lock = lock.with_ttl(ms(300));
    let guard = now(lock.lock()).unwrap();
    admin.run(&["LOCK.RENEW", "a", "t", "60000"]);
    proxy.delay_replies(400);
    let late = now(guard.extend(ms(60_000)));
    assert!(matches!(late, Err(Error::NotHeld)));
    proxy.delay_replies(0);
    drop(guard);
    eventually("nothing is left", || admin.is_free("a"));

    // The server may still have it.
    let guard = now(lock.lock()).unwrap();
    admin.run(&["LOCK.RENEW", "a", "t", "60000"]);
    eventually("the lease ends", || guard.is_lost());
    assert!(!now(guard.check()).unwrap());
}

#[test]
fn a_hold_that_is_lost_has_no_mode_to_keep() {
    let server = Server::start();
    let pages = open(server.url(), options()).rwlock("a").with_ttl(ms(100));
    let mut reader = now(pages.read()).unwrap();
    eventually("the share ends", || reader.is_lost());
    let kept = now(reader.downgrade());
    assert!(matches!(kept, Err(Error::NotHeld)), "{kept:?}");
    drop(reader);
    let mut writer = now(pages.write()).unwrap();
    eventually("the hold ends", || writer.is_lost());
    let kept = [
        now(writer.upgrade()),
        now(writer.try_upgrade()).map(drop),
        now(writer.upgrade_timeout(ms(20))).map(drop),
    ];
    for kept in kept {
        assert!(matches!(kept, Err(Error::NotHeld)), "{kept:?}");
    }
}

#[test]
fn a_late_conversion_revives_no_lease() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let mut admin = server.admin();
    let pages = open(proxy.url(), options()).rwlock("a").with_token("t");
    for is_upgrade in [false, true] {
        let mut guard = match is_upgrade {
            true => now(pages.read()).unwrap(),
            false => now(pages.write()).unwrap(),
        };
        now(guard.extend(ms(300))).unwrap();
        admin.run(&["LOCK.RENEW", "a", "t", "60000"]);
        proxy.delay_replies(400);
        let late = match is_upgrade {
            true => now(guard.try_upgrade()).map(drop),
            false => now(guard.downgrade()),
        };
        proxy.delay_replies(0);
        assert!(matches!(late, Err(Error::NotHeld)), "{late:?}");
        assert!(guard.is_lost());
        drop(guard);
        eventually("nothing is left", || admin.is_free("a"));
    }
}

#[test]
fn a_late_grant_that_is_lost_is_asked_for_again() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let mut admin = server.admin();
    // TRYAGAIN may be said for longer than the server is asked for a renewal.
    for (answer, reconnect) in [(":0\r\n", 3_000), (TRY_AGAIN, 0)] {
        let lock = open(proxy.url(), options().reconnect(ms(reconnect))).lock("k");
        admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
        let before = admin.calls("lock.acquire");
        let waiting = thread::spawn(move || now(now(lock.lock()).unwrap().unlock()).unwrap());
        admin.await_waiters("k", 1);
        sleep(ms(300));
        proxy.answer_renewals(1, answer);
        admin.run(&["LOCK.RELEASE", "k", "holder"]);
        waiting.join().unwrap();
        assert_eq!(proxy.fakes_left(), 0);
        // The one that waited is the second of a task, which asks without waiting first.
        let asked = 2 + usize::from(LISTENS);
        assert_eq!(admin.calls("lock.acquire"), before + asked);
    }
}

#[test]
fn try_again_loses_nothing_before_the_lease_is_over() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (lost, count) = counter();
    let locks = open(proxy.url(), options().on_lost(count));
    let mut admin = server.admin();
    let guard = now(locks.lock("a").lock()).unwrap();
    let watchdog = guard.keep_alive();
    let before = admin.calls("lock.renew");
    proxy.answer_renewals(3, TRY_AGAIN);
    eventually("a renewal is answered", || {
        admin.calls("lock.renew") > before
    });
    assert_eq!(proxy.fakes_left(), 0);
    assert!(!watchdog.is_lost());
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    assert!(is_told(&watchdog));
    assert!(Instant::now() >= guard.valid_until());
    eventually("it is told", || lost.load(SeqCst) == 1);
}

#[test]
fn a_renewal_by_hand_asks_again_until_the_lease_ends() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    // Longer than a server that is out of reach is asked.
    let locks = open(proxy.url(), Options::default().ttl(ms(4_500)));
    let guard = now(locks.lock("a").lock()).unwrap();
    proxy.answer_renewals(2, TRY_AGAIN);
    now(guard.renew()).unwrap();
    assert_eq!(proxy.fakes_left(), 0);
    // Holds that linger are bound to the connection.
    assert_eq!(proxy.connections(), 1);
    proxy.answer_renewals(ALWAYS, TRY_AGAIN);
    let end = guard.valid_until();
    assert!(matches!(now(guard.renew()), Err(Error::NotHeld)));
    assert!(Instant::now() >= end && guard.is_lost());
}

#[test]
fn a_renewal_by_hand_asks_for_no_longer_than_its_lease_lasts() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let locks = open(proxy.url(), options().reconnect(ms(20_000)));
    for is_away in [false, true] {
        let guard = now(locks.lock(format!("a{is_away}")).lock()).unwrap();
        match is_away {
            true => proxy.close(),
            false => proxy.answer_renewals(ALWAYS, TRY_AGAIN),
        }
        let begin = Instant::now();
        let failed = now(guard.extend(ms(60_000))).unwrap_err();
        assert!(guard.is_lost(), "{failed}");
        assert!(begin.elapsed() < ms(10_000), "{:?}", begin.elapsed());
    }
}

#[test]
fn a_server_that_is_no_primary_any_more_is_left() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let mut admin = server.admin();
    let locks = open(proxy.url(), Options::default().reconnect(ms(0)));
    let guard = now(locks.lock("a").lock()).unwrap();
    admin.run(&["REPLICAOF", "127.0.0.1", "1"]);
    let renewing = thread::spawn(move || now(guard.renew()).map(|()| guard));
    eventually("it asks who is", || proxy.connections() > 1);
    admin.run(&["REPLICAOF", "NO", "ONE"]);
    now(renewing.join().unwrap().unwrap().unlock()).unwrap();
}

#[test]
fn a_ttl_above_max_ttl_says_where_it_comes_from() {
    let server = Server::start_with(&["max-ttl", "2000"]);
    let locks = open(server.url(), options());
    let refused = now(locks.lock("k").with_ttl(ms(2_001)).lock());
    assert!(is_too_long(&refused.unwrap_err()));
    let guard = now(locks.lock("k").lock()).unwrap();
    assert!(is_too_long(&now(guard.extend(ms(2_001))).unwrap_err()));
    assert!(!guard.is_lost());
}
