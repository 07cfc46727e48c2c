//! `Options::fallback`, on servers that have no module and on one that has it.

use std::sync::atomic::Ordering::SeqCst;

use redis_lock_client::{Error, Options, Result};

use super::common::{Proxy, Server, counter};
use super::{ms, now, open};

fn falling_back() -> Options {
    Options::default().fallback(true)
}

#[track_caller]
fn is_missing<T>(result: Result<T>, part: &str) {
    let error = result.err().expect("it is missing");
    assert!(matches!(error, Error::ModuleMissing(_)), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[test]
fn another_type_over_the_key_is_somebody_elses() {
    let server = Server::start_without_module();
    let locks = open(server.url(), falling_back());
    let mut admin = server.admin();
    let late = now(locks.lock("k").with_ttl(ms(60_000)).lock()).unwrap();
    assert!(admin.int(&["PTTL", "k"]) > 50_000);
    admin.run(&["DEL", "k"]);
    admin.run(&["HSET", "k", "f", "1"]);
    assert!(now(locks.lock("k").try_lock()).unwrap().is_none());
    assert!(!now(late.check()).unwrap());
    assert!(matches!(now(late.renew()), Err(Error::NotHeld)));
    assert!(matches!(now(late.unlock()), Err(Error::NotHeld)));
    assert_eq!(admin.int(&["DEL", "k"]), 1);
}

/// What else it lacks is in the scenarios, for a client that has chosen it before.
#[test]
fn the_fallback_has_no_more_than_a_lock_and_says_so_once() {
    let server = Server::start_without_module();
    let part = "not available in the fallback";
    let (said, count) = counter::<str>();
    let locks = open(server.url(), falling_back().on_fallback(count));
    is_missing(now(locks.multi_lock(["k", "l"]).lock()), part);
    let mut guard = now(locks.rwlock("k").write()).unwrap();
    is_missing(now(guard.exec::<()>(&redis::cmd("PING"))), part);
    is_missing(now(guard.downgrade()), part);
    assert_eq!(said.load(SeqCst), 1);
}

/// The choice is made once, so that the two ways of locking never meet in one client.
#[test]
fn the_fallback_is_chosen_once_and_not_where_the_module_is() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (said, count) = counter::<str>();
    let locks = open(proxy.url(), falling_back().on_fallback(count));
    let guard = now(locks.lock("k").lock()).unwrap();
    assert!(guard.fence() > 0);
    now(guard.unlock()).unwrap();
    // As if the module went: the client does not change its mind.
    let unknown = "-ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'k'\r\n";
    proxy.answer("LOCK.ACQUIRE", usize::MAX, unknown);
    is_missing(now(locks.lock("k").lock()), "");
    assert_eq!(said.load(SeqCst), 0);
}
