//! `Options::fallback`, on servers that have no module and on one that has it.

use std::sync::atomic::Ordering::SeqCst;

use redis_lock_client::{Error, Options, Result};

use super::common::{Proxy, Server, counter};
use super::{library, ms, now, once, open};

fn falling_back() -> Options {
    Options::default().fallback(true)
}

#[track_caller]
fn is_missing<T>(result: Result<T>, parts: &[&str]) {
    match result {
        Err(error @ Error::ModuleMissing(_)) => {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

/// All but a lock is refused, with an error that says so.
fn all_else_is_missing(locks: &library::LockClient, parts: &[&str]) {
    is_missing(now(locks.multi_lock(["k", "l"]).lock()), parts);
    is_missing(now(locks.rwlock("k").read()), parts);
    is_missing(now(locks.semaphore("k", 3).try_acquire()), parts);
    is_missing(once(locks, ("k", 1_000, 500), || ()), parts);
}

#[test]
fn a_missing_module_is_explained() {
    let server = Server::start_without_module();
    let locks = open(server.url(), Options::default());
    let parts = [
        "loadmodule /path/libredis_lock.so",
        "restart the server",
        "Options::fallback",
    ];
    is_missing(now(locks.lock("k").try_lock()), &parts);
    is_missing(now(locks.rwlock("k").try_write()), &parts);
    all_else_is_missing(&locks, &parts);
    assert_eq!(server.admin().int(&["DBSIZE"]), 0);
}

/// Proxies and hosted servers have words of their own.
#[test]
fn a_missing_module_is_known_in_other_words() {
    let server = Server::start_without_module();
    for words in [
        "-ERR Command is not available: 'LOCK.ACQUIRE'. See the documentation\r\n",
        "-ERR unsupported command 'lock.acquire'\r\n",
        "-unknown command\r\n",
    ] {
        let proxy = Proxy::to(server.port);
        proxy.answer("LOCK.", usize::MAX, words);
        let locks = open(proxy.url(), Options::default());
        is_missing(now(locks.lock("k").try_lock()), &["loadmodule"]);
        let locks = open(proxy.url(), falling_back());
        now(now(locks.lock("k").lock()).unwrap().unlock()).unwrap();
    }
}

#[test]
fn a_string_or_another_type_over_the_key_is_somebody_elses() {
    let server = Server::start_without_module();
    let locks = open(server.url(), falling_back());
    let mut admin = server.admin();
    for words in [&["SET", "k", "somebody else"][..], &["HSET", "k", "f", "1"]] {
        let late = now(locks.lock("k").with_ttl(ms(60_000)).lock()).unwrap();
        assert!(admin.int(&["PTTL", "k"]) > 50_000);
        admin.run(&["DEL", "k"]);
        admin.run(words);
        assert!(now(locks.lock("k").try_lock()).unwrap().is_none());
        assert!(!now(late.check()).unwrap());
        assert!(matches!(now(late.renew()), Err(Error::NotHeld)));
        assert!(matches!(now(late.unlock()), Err(Error::NotHeld)));
        assert_eq!(admin.int(&["DEL", "k"]), 1);
    }
}

#[test]
fn the_fallback_has_no_more_than_a_lock() {
    let server = Server::start_without_module();
    let parts = ["not available in the fallback"];
    for is_first in [true, false] {
        let (said, count) = counter::<str>();
        let locks = open(server.url(), falling_back().on_fallback(count));
        if !is_first {
            now(now(locks.lock("k").lock()).unwrap().unlock()).unwrap();
        }
        all_else_is_missing(&locks, &parts);
        assert_eq!(once(&locks, ("k", 1_000, 0), || 7).unwrap(), Some(7));
        let mut guard = now(locks.rwlock("k").write()).unwrap();
        let set = redis::cmd("SET").arg("v").arg(1).to_owned();
        is_missing(now(guard.exec::<()>(&set)), &parts);
        is_missing(now(guard.downgrade()), &parts);
        now(guard.unlock()).unwrap();
        assert_eq!(said.load(SeqCst), 1);
    }
    assert_eq!(server.admin().int(&["DBSIZE"]), 0);
}

#[test]
fn an_answer_that_was_lost_is_no_obstacle_in_the_fallback() {
    let server = Server::start_without_module();
    let proxy = Proxy::to(server.port);
    let locks = open(proxy.url(), falling_back());
    now(now(locks.lock("k").lock()).unwrap().unlock()).unwrap();
    for of in ["'SET'", "PEXPIRE", "'DEL'"] {
        proxy.lose_replies(1, of);
        let guard = now(locks.lock("k").try_lock()).unwrap().unwrap();
        now(guard.renew()).unwrap();
        now(guard.unlock()).unwrap();
        assert_eq!(proxy.losses_left(), 0, "{of}");
    }
}

/// The choice is made once, so that the two ways of locking never meet in one client.
#[test]
fn the_fallback_is_chosen_once_and_not_where_the_module_is() {
    let server = Server::start();
    let (said, count) = counter::<str>();
    let locks = open(server.url(), falling_back().on_fallback(count));
    let mut guard = now(locks.rwlock("k").write()).unwrap();
    assert!(guard.fence() > 0);
    now(guard.downgrade()).unwrap();
    now(guard.unlock()).unwrap();
    now(now(locks.multi_lock(["k", "l"]).lock()).unwrap().unlock()).unwrap();
    now(now(locks.semaphore("k", 3).acquire()).unwrap().unlock()).unwrap();
    assert_eq!(once(&locks, ("k", 1_000, 1), || 7).unwrap(), Some(7));
    assert_eq!(said.load(SeqCst), 0);
    // The module goes, and the client does not change its mind.
    if server.admin().ask(&["MODULE", "UNLOAD", "lock"]).is_ok() {
        is_missing(now(locks.lock("k").lock()), &[]);
        assert_eq!(said.load(SeqCst), 0);
    }
}
