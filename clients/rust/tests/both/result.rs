//! A value that one of all callers makes: what the scenarios do not say.

use std::time::Instant;

use redis_lock_client::{Error, Options, Result};

use super::common::{Admin, BOUND, Cluster, eventually, proxied};
use super::{cluster, get, library, ms, now, open};

const LOCK: &str = "{page}:once";

fn page(locks: &library::LockClient) -> library::Once {
    locks.once("page").with_wait(BOUND)
}

fn unused(_: &library::Guard) -> Result<String> {
    panic!("it is not to run")
}

fn text(text: &str) -> impl FnOnce(&library::Guard) -> Result<String> {
    |_| Ok(text.to_owned())
}

/// What is stored, while nobody holds or wants the lock.
fn stored(admin: &mut Admin) -> Option<String> {
    assert!(admin.is_free(LOCK));
    redis::from_redis_value(admin.run(&["GET", "page"])).unwrap()
}

#[test]
fn a_value_has_the_type_that_is_asked_for() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default());
    assert_eq!(get(&page(&locks), |_| Ok(7_u64)).unwrap(), 7);
    assert_eq!(get(&page(&locks), unused).unwrap(), "7");
    admin.run(&["SET", "page", "seven"]);
    let unread = get(&page(&locks), |_| Ok(7_u64));
    assert!(matches!(unread, Err(Error::Redis(_))), "{unread:?}");
    admin.run(&["DEL", "page"]);
    for made in [b"\x00\xff".to_vec(), Vec::new()] {
        let bytes: Result<Vec<u8>> = get(&page(&locks), |_| Ok(made));
        assert_eq!(bytes.unwrap(), b"\x00\xff");
    }
    // What is left behind somebody would have to give up.
    assert_eq!(admin.calls("lock.release"), admin.calls("lock.exec"));
    for key in ["page", LOCK] {
        admin.run(&["DEL", "page"]);
        admin.run(&["LPUSH", key, "x"]);
        let refused = get(&page(&locks), unused).unwrap_err().to_string();
        assert!(refused.contains("WRONGTYPE"), "{refused}");
    }
}

#[test]
fn xfetch_draws_how_early_it_is() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default());
    admin.run(&["SET", "page", "old", "PX", "25000"]);
    for (delta, beta) in [(0, 1.0), (3_600_000, -1.0)] {
        let soon = page(&locks).with_xfetch(ms(delta), beta);
        assert_eq!(get(&soon, unused).unwrap(), "old");
    }
    let early = page(&locks).with_xfetch(ms(3_600_000), 1e9);
    assert_eq!(get(&early, text("new")).unwrap(), "new");
    // A new one is never early.
    assert_eq!(get(&early, unused).unwrap(), "new");
    assert_eq!(stored(&mut admin).unwrap(), "new");
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    let (_server, proxy, mut admin) = proxied();
    let locks = open(proxy.url(), Options::default());
    for of in ["GET", "LOCK.ONCE", "LOCK.EXEC"] {
        admin.run(&["DEL", "page"]);
        proxy.lose_replies(1, of);
        assert_eq!(get(&page(&locks), text(of)).unwrap(), of);
        assert_eq!(proxy.faults().losses, 0, "{of}");
        assert_eq!(stored(&mut admin).unwrap(), of);
    }
}

/// LOCK.ONCE would answer the value, and bind nothing.
#[test]
fn with_linger_the_lock_is_bound_to_the_next_connection() {
    let (_server, proxy, mut admin) = proxied();
    let options = Options::default().linger(ms(1_500));
    let locks = open(proxy.url(), options);
    admin.run(&["SET", "page", "old", "PX", "20000"]);
    let early = page(&locks).with_early(ms(30_000));
    let made = get(&early, |guard| {
        let ends = guard.valid_until();
        proxy.cut();
        eventually("it would have ended", || Instant::now() > ends);
        assert!(!guard.is_lost());
        Ok("new".to_owned())
    });
    assert_eq!(made.unwrap(), "new");
    assert_eq!(stored(&mut admin).unwrap(), "new");
}

/// The fallback of plain locks is chosen by an answer about them.
#[test]
fn a_server_with_an_older_module_is_an_error_that_says_so() {
    let (_server, proxy, _) = proxied();
    let old = "-ERR unknown command 'LOCK.ONCE', with args beginning with: 'page' \r\n";
    proxy.answer("LOCK.ONCE", usize::MAX, old);
    let locks = open(proxy.url(), Options::default().fallback(true));
    for _ in 0..2 {
        let error = get(&page(&locks), unused).unwrap_err();
        assert!(matches!(error, Error::ModuleMissing(_)), "{error}");
        assert!(error.to_string().contains("LOCK.ONCE"), "{error}");
        let guard = now(locks.lock("k").lock()).unwrap();
        assert!(guard.fence() > 0);
        now(guard.unlock()).unwrap();
    }
}

#[test]
fn in_a_cluster_it_follows_its_slot() {
    let servers = Cluster::start();
    let locks = cluster(servers.urls(), Options::default());
    let name = servers.key_of(0, "page");
    let once = locks.once(&name).with_early(ms(0));
    assert_eq!(get(&once, text("new")).unwrap(), "new");
    let slot = servers.begin_to_move(&name, 0, 1);
    // The server cannot say whether the lock is free. Nobody waits because of a value that is there.
    let (early, start) = (locks.once(&name).with_early(BOUND), Instant::now());
    let early = early.with_keep(10 * BOUND);
    servers.nodes[0].admin().run(&["PEXPIRE", &name, "15000"]);
    assert_eq!(get(&early, unused).unwrap(), "new");
    assert!(start.elapsed() < ms(10_000));
    // It has arrived, and its slot has not.
    let [from, to] = [0, 1].map(|node| &servers.nodes[node]);
    let to_port = to.port.to_string();
    from.admin()
        .run(&["MIGRATE", "127.0.0.1", &to_port, &name, "0", "5000"]);
    assert_eq!(get(&once, unused).unwrap(), "new");
    servers.end_move(&slot, 0, 1);
    assert_eq!(get(&once, unused).unwrap(), "new");
    to.admin().run(&["DEL", &name]);
    assert_eq!(get(&once, text("there")).unwrap(), "there");
}
