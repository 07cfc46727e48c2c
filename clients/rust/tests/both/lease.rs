//! How long a hold lasts by the client's clock, and what the server says to that.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, sleep};
use std::time::Instant;

use redis_lock_client::{Error, Options};

use super::common::{Server, counter, eventually, proxied};
use super::{LISTENS, is_told, ms, now, open};

const TRY_AGAIN: &str = "-TRYAGAIN not enough servers have confirmed it\r\n";

/// A short ttl would be over on a busy machine.
fn options() -> Options {
    Options::default().ttl(ms(2_000))
}

#[test]
fn a_lease_counts_from_the_sending_less_the_drift() {
    let (_server, proxy, _) = proxied();
    let guard = now(open(proxy.url(), options()).lock("a").lock()).unwrap();
    proxy.delay_replies(200);
    let sent = Instant::now();
    now(guard.extend(ms(100_000))).unwrap();
    let early = guard.valid_until() - sent;
    assert!(early >= ms(98_998) && early < ms(99_150), "{early:?}");
}

#[test]
fn a_keeper_renews_in_time_what_became_shorter() {
    let (_server, proxy, _) = proxied();
    let lock = open(proxy.url(), options()).lock("a").with_ttl(ms(600_000));
    let guard = now(lock.lock()).unwrap();
    let _kept = guard.keep_alive();
    // By the second time it sleeps.
    for _ in 0..2 {
        now(guard.extend(ms(4_000))).unwrap();
        let is_long = || guard.valid_until() > Instant::now() + ms(300_000);
        eventually("it is renewed", is_long);
    }
}

#[test]
fn a_late_answer_revives_no_lease_and_leaves_nothing() {
    let (_server, proxy, mut admin) = proxied();
    let pages = open(proxy.url(), options()).rwlock("a").with_token("t");
    for what in ["extend", "downgrade", "upgrade"] {
        let mut guard = match what {
            "upgrade" => now(pages.read()).unwrap(),
            _ => now(pages.write()).unwrap(),
        };
        now(guard.extend(ms(300))).unwrap();
        admin.run(&["LOCK.RENEW", "a", "t", "60000"]);
        proxy.delay_replies(400);
        let late = match what {
            "extend" => now(guard.extend(ms(60_000))),
            "downgrade" => now(guard.downgrade()),
            _ => now(guard.try_upgrade()).map(drop),
        };
        proxy.delay_replies(0);
        assert!(matches!(late, Err(Error::NotHeld)), "{what}: {late:?}");
        assert!(guard.is_lost());
        drop(guard);
        eventually("nothing is left", || admin.is_free("a"));
    }
    // Nor does the server when it has it still.
    let mut guard = now(pages.with_ttl(ms(300)).write()).unwrap();
    admin.run(&["LOCK.RENEW", "a", "t", "60000"]);
    eventually("the lease ends", || guard.is_lost());
    assert!(!now(guard.check()).unwrap());
    assert!(matches!(now(guard.upgrade()), Err(Error::NotHeld)));
    assert!(matches!(now(guard.downgrade()), Err(Error::NotHeld)));
}

#[test]
fn a_late_grant_that_is_lost_is_asked_for_again() {
    let (_server, proxy, mut admin) = proxied();
    // TRYAGAIN may be said for longer than the server is asked for a renewal.
    for (answer, reconnect) in [(":0\r\n", 3_000), (TRY_AGAIN, 0)] {
        let lock = open(proxy.url(), options().reconnect(ms(reconnect))).lock("k");
        admin.run(&["LOCK.ACQUIRE", "k", "holder", "60000"]);
        let before = admin.calls("lock.acquire");
        let waiting = thread::spawn(move || now(now(lock.lock()).unwrap().unlock()).unwrap());
        admin.await_waiters("k", 1);
        sleep(ms(300));
        proxy.answer("LOCK.RENEW", 1, answer);
        admin.run(&["LOCK.RELEASE", "k", "holder"]);
        waiting.join().unwrap();
        assert_eq!(proxy.faults().fakes, 0);
        // The one that waited is the second of a task, which asks without waiting first.
        let asked = 2 + usize::from(LISTENS);
        assert_eq!(admin.calls("lock.acquire"), before + asked);
    }
}

#[test]
fn try_again_loses_nothing_before_the_lease_is_over() {
    let (_server, proxy, mut admin) = proxied();
    let (lost, count) = counter();
    let guard = now(open(proxy.url(), options().on_lost(count)).lock("a").lock());
    let guard = guard.unwrap();
    let watchdog = guard.keep_alive();
    let before = admin.calls("lock.renew");
    proxy.answer("LOCK.RENEW", 3, TRY_AGAIN);
    eventually("it renews", || admin.calls("lock.renew") > before);
    assert!(proxy.faults().fakes == 0 && !watchdog.is_lost());
    proxy.answer("LOCK.RENEW", usize::MAX, TRY_AGAIN);
    assert!(is_told(&watchdog));
    assert!(Instant::now() >= guard.valid_until());
    eventually("it is told", || lost.load(SeqCst) == 1);
}

#[test]
fn a_server_that_is_no_primary_any_more_is_left() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default().reconnect(ms(0)));
    let guard = now(locks.lock("a").lock()).unwrap();
    admin.run(&["REPLICAOF", "127.0.0.1", "1"]);
    let renewing = thread::spawn(move || now(guard.renew()).map(|()| guard));
    eventually("it asks who is", || proxy.connections() > 1);
    admin.run(&["REPLICAOF", "NO", "ONE"]);
    now(renewing.join().unwrap().unwrap().unlock()).unwrap();
}

#[test]
fn a_renewal_by_hand_asks_again_and_for_no_longer_than_its_lease_lasts() {
    let (_server, proxy, _) = proxied();
    // The lease is longer than one server that is out of reach is asked, and shorter than another is.
    for (ttl, reconnect, is_away) in [(4_500, 3_000, false), (2_000, 20_000, true)] {
        let options = Options::default().ttl(ms(ttl)).reconnect(ms(reconnect));
        let guard = now(open(proxy.url(), options).lock(format!("a{ttl}")).lock()).unwrap();
        proxy.answer("LOCK.RENEW", 2, TRY_AGAIN);
        now(guard.renew()).unwrap();
        assert_eq!(proxy.faults().fakes, 0);
        // Holds that linger are bound to the connection. That of the lease before may still be closing.
        eventually("there is one connection", || proxy.connections() == 1);
        proxy.answer("LOCK.RENEW", usize::MAX, TRY_AGAIN);
        if is_away {
            proxy.close();
        }
        let (begin, end) = (Instant::now(), guard.valid_until());
        let failed = now(guard.extend(ms(60_000))).unwrap_err();
        assert!(is_away || matches!(failed, Error::NotHeld), "{failed}");
        assert!(guard.is_lost() && Instant::now() >= end, "{failed}");
        assert!(begin.elapsed() < ms(10_000), "{:?}", begin.elapsed());
        proxy.cut();
    }
}

#[test]
fn a_renewal_above_max_ttl_is_an_error_and_no_loss() {
    let server = Server::start_with(&["max-ttl", "2000"]);
    let guard = now(open(server.url(), options()).lock("k").lock()).unwrap();
    let refused = now(guard.extend(ms(2_001))).unwrap_err();
    assert!(matches!(refused, Error::TtlTooLong(_)), "{refused}");
    assert!(!guard.is_lost());
}
