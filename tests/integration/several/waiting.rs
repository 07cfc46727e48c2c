//! A request for several keys that waits: its turn, and the order among others.

use std::thread;

use super::{assert_held, holds};
use crate::harness::{wait_for, Kind, Later, Reply, Server};
use crate::places::fixture::{leaves_place, mode, place, queued, until_gone, Subscriber};

on_every_server![
    it_is_granted_when_the_last_key_is_free,
    it_holds_nothing_while_it_waits,
    those_behind_it_wait_and_those_ahead_go_first,
    a_deadline_of_any_key_grants_it,
    what_ends_a_lock_from_outside_grants_it,
    crossing_orders_do_not_wait_for_each_other,
    it_is_not_passed_over_for_ever,
    readers_behind_it_enter_with_it,
    requests_in_a_chain_are_granted_in_one_step,
    two_requests_of_a_token_are_granted_together,
    a_channel_is_told_of_the_first_key,
    limits_count_one_place_at_each_key,
    it_waits_in_its_own_database,
    a_wait_that_would_close_a_cycle_is_refused,
    the_holds_of_a_lost_connection_linger,
];

/// Two keys, and a request for both that waits for the second.
fn waiting(server: &Server) -> Later {
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b x 60000");
    server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0")
}

fn it_is_granted_when_the_last_key_is_free(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let before = c.int("LOCK.MACQUIRE 3 a b c x 60000");
    let waits =
        server.blocked("LOCK.MACQUIRE 3 c b a me 30000 MODES SHARED EXCLUSIVE SHARED BLOCK 0");
    for key in ["b", "a"] {
        c.int(&format!("LOCK.RELEASE {key} x"));
        assert_eq!(c.waiters(key), ["me"]);
        assert_eq!(c.int(&format!("EXISTS {key}")), 0);
    }
    assert_eq!(place(&mut c, "a", "me").mode, "shared");
    assert_eq!(place(&mut c, "b", "me").mode, "exclusive");
    assert!(waits.is_pending());
    c.int("LOCK.RELEASE c x");
    let fence = waits.fence();
    assert!(fence > before);
    assert_held(&mut c, &["a", "b", "c"], "me", fence);
    // The whole lease counts from the grant.
    assert!((25_000..=30_000).contains(&holds(&mut c, "a")[0].2));
    assert_eq!(c.waiters("b"), [""; 0]);
    assert_eq!(c.info("lock_waiters"), "0");
}

fn it_holds_nothing_while_it_waits(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waits = waiting(&server);
    assert_eq!(c.int("EXISTS a"), 0);
    assert_eq!(c.int("LOCK.RENEW a me 60000"), 0);
    assert_eq!(c.call("LOCK.CHECK a me"), Reply::Nil);
    assert_eq!(mode(&mut c, "a"), "free");
    assert_eq!(
        c.call("LOCK.ACQUIRE a you 60000"),
        Reply::Nil,
        "it is ahead"
    );
    assert!(waits.is_pending());
}

fn those_behind_it_wait_and_those_ahead_go_first(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.MACQUIRE 2 a b x 60000");
    let ahead = server.blocked("LOCK.ACQUIRE a ahead 60000 BLOCK 0");
    let waits = server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0");
    let behind = server.blocked("LOCK.ACQUIRE b behind 60000 BLOCK 0");
    c.int("LOCK.RELEASE b x");
    assert!(
        behind.is_pending(),
        "it waits behind a request that cannot go on yet"
    );
    c.int("LOCK.RELEASE a x");
    let first = ahead.fence();
    c.int("LOCK.RELEASE a ahead");
    let fence = waits.fence();
    assert!(fence > first);
    assert!(behind.is_pending());
    c.int("LOCK.RELEASE a me");
    assert!(behind.is_pending());
    c.int("LOCK.RELEASE b me");
    assert!(behind.fence() > fence);
}

fn a_deadline_of_any_key_grants_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (first, last) in [("a", "b"), ("b", "a")] {
        c.int(&format!("LOCK.ACQUIRE {first} x 30"));
        c.int(&format!("LOCK.ACQUIRE {last} x 90"));
        let fence = server
            .later("LOCK.MACQUIRE 3 a b c me 60000 BLOCK 0")
            .fence();
        assert_held(&mut c, &["a", "b", "c"], "me", fence);
        c.call("FLUSHALL");
    }
}

fn what_ends_a_lock_from_outside_grants_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for end in [
        "DEL b",
        "UNLINK b",
        "FLUSHDB",
        "FLUSHALL",
        "PEXPIRE b 20",
        "PEXPIREAT b 1",
        "RENAME b elsewhere",
        "MOVE b 3",
        "SWAPDB 0 5",
        "EVAL return{redis.call('LOCK.RELEASE',KEYS[1],'x')} 1 b",
    ] {
        let waits = waiting(&server);
        let reply = c.call(end);
        assert!(!matches!(reply, Reply::Error(_)), "{end}: {reply:?}");
        let fence = waits.fence();
        assert_held(&mut c, &["a", "b"], "me", fence);
        c.call("FLUSHALL");
    }
    // A lock that comes under the key that was free keeps it out again.
    let waits = waiting(&server);
    c.int("LOCK.ACQUIRE c y 60000");
    c.call("RENAME c a");
    c.int("LOCK.RELEASE b x");
    assert!(waits.is_pending());
    assert_eq!(c.holders("a"), ["y"]);
    c.int("LOCK.RELEASE a y");
    waits.fence();
}

fn crossing_orders_do_not_wait_for_each_other(kind: Kind) {
    let server = Server::start(kind);
    let orders = ["2 a b", "2 b a", "3 b c a", "2 c b", "3 a b c"];
    let rounds = 40;
    thread::scope(|scope| {
        for (n, order) in orders.iter().enumerate() {
            let mut c = server.client();
            scope.spawn(move || {
                let keys: Vec<&str> = order.split(' ').skip(1).collect();
                for _ in 0..rounds {
                    let line = format!("LOCK.MACQUIRE {order} t{n} 60000 BLOCK 60000");
                    let fence = c.int(&line);
                    for key in keys.iter().rev() {
                        assert_eq!(c.int(&format!("LOCK.CHECK {key} t{n}")), fence);
                        assert_eq!(c.int(&format!("LOCK.RELEASE {key} t{n}")), 1);
                    }
                }
            });
        }
    });
    let mut c = server.client();
    assert_eq!(c.int("EXISTS a b c"), 0);
    let granted = orders.len() * rounds;
    assert_eq!(c.info("lock_macquired"), granted.to_string());
    assert_eq!(c.info("lock_waiters"), "0");
}

/// Others come and go at each of its keys, and there is never a moment when nobody else wants one of them.
fn it_is_not_passed_over_for_ever(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut queues: Vec<_> = ["a", "b"]
        .map(|key| {
            c.int(&format!("LOCK.ACQUIRE {key} {key}0 60000"));
            let first = server.blocked(&format!("LOCK.ACQUIRE {key} {key}1 60000 BLOCK 0"));
            (key, 0, first)
        })
        .into_iter()
        .collect();
    let waits = server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0");
    for (key, n, next) in &mut queues {
        let newer = server.blocked(&format!("LOCK.ACQUIRE {key} {key}{} 60000 BLOCK 0", *n + 2));
        c.int(&format!("LOCK.RELEASE {key} {key}{n}"));
        std::mem::replace(next, newer).fence();
        *n += 1;
    }
    // It is the first one of both queues, but both are held.
    assert!(waits.is_pending());
    c.int("LOCK.RELEASE a a1");
    let shared = server.blocked("RWLOCK.RLOCK a reader 60000 BLOCK 0");
    assert!(waits.is_pending() && shared.is_pending());
    c.int("LOCK.RELEASE b b1");
    let fence = waits.fence();
    assert_held(&mut c, &["a", "b"], "me", fence);
    assert_eq!(c.waiters("a"), ["a2", "reader"]);
}

fn readers_behind_it_enter_with_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b x 60000");
    let waits = server.blocked("LOCK.MACQUIRE 2 a b me 60000 MODES SHARED SHARED BLOCK 0");
    let one = server.blocked("RWLOCK.RLOCK a one 60000 BLOCK 0");
    let two = server.blocked("RWLOCK.RLOCK b two 60000 BLOCK 0");
    c.int("LOCK.RELEASE b x");
    // The very next command sees all of them.
    assert_eq!(c.holders("a"), ["me", "one"]);
    assert_eq!(c.holders("b"), ["me", "two"]);
    for later in [waits, one, two] {
        later.fence();
    }
}

fn requests_in_a_chain_are_granted_in_one_step(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE a x 60000");
    let shared = "MODES SHARED SHARED BLOCK 0";
    let all: Vec<Later> = ["a b", "b c", "c d", "d e"]
        .iter()
        .enumerate()
        .map(|(n, keys)| server.blocked(&format!("LOCK.MACQUIRE 2 {keys} t{n} 60000 {shared}")))
        .collect();
    let replies = c.multi(&["LOCK.RELEASE a x", "LOCK.INFO e"]);
    let holders = replies[1].field("holders");
    assert_eq!(holders.items()[0].field("token").as_bytes(), b"t3");
    let fences: Vec<i64> = all.into_iter().map(Later::fence).collect();
    assert!(fences.is_sorted(), "{fences:?}");
}

fn two_requests_of_a_token_are_granted_together(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let one = waiting(&server);
    let two = server.blocked("LOCK.MACQUIRE 2 b a me 30000 BLOCK 0");
    assert_eq!(c.info("lock_waiters"), "1");
    c.int("LOCK.RELEASE b x");
    let fence = one.fence();
    assert_eq!(two.fence(), fence);
    assert_held(&mut c, &["a", "b"], "me", fence);
    assert!(
        c.int("PTTL a") <= 30_000,
        "the later request has set the deadline"
    );
}

fn a_channel_is_told_of_the_first_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE b x 60000");
    queued(&mut c, "LOCK.MACQUIRE 2 b a me 60000 NOTIFY 0 c");
    let beside = server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0");
    assert_eq!(sub.so_far(), [""; 0]);
    c.int("LOCK.RELEASE b x");
    let fence = sub.fence("b", "me");
    assert_eq!(beside.fence(), fence);
    assert_held(&mut c, &["a", "b"], "me", fence);
    assert_eq!(c.int("LOCK.MACQUIRE 2 a b me 60000 NOTIFY 0 c"), fence);
    // The end of a wait names it, too.
    queued(&mut c, "LOCK.MACQUIRE 3 d b a you 60000 NOTIFY 10 c");
    assert_eq!(sub.text(), "timeout 0 1 d you");
    until_gone(&mut c, "a", "you");
    // A grant that nobody receives is not made, and the next ones go on.
    queued(&mut c, "LOCK.MACQUIRE 2 a b deaf 60000 NOTIFY 0 nobody");
    let next = server.blocked("LOCK.ACQUIRE b next 60000 BLOCK 0");
    c.int("LOCK.RELEASE a me");
    c.int("LOCK.RELEASE b me");
    next.fence();
    assert_eq!(c.int("EXISTS a"), 0);
    assert_eq!(c.info("lock_unheard"), "1");
    assert_eq!(c.info("lock_passed_over"), "1");
    assert_eq!(sub.so_far(), [""; 0]);
}

fn limits_count_one_place_at_each_key(kind: Kind) {
    let options = ["max-waiters-per-key", "2", "max-waiters", "3"];
    let server = Server::start_as(kind, crate::harness::Setup::with_module(&options));
    let mut c = server.client();
    c.int("LOCK.MACQUIRE 3 a b c x 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE a one 60000 KEEP 60000");
    assert_eq!(
        c.call("LOCK.MACQUIRE 2 a b two 60000 KEEP 60000"),
        Reply::Nil
    );
    assert_eq!(c.info("lock_waiters"), "2");
    let error = c.error("LOCK.MACQUIRE 2 c a three 60000 KEEP 60000");
    assert!(error.contains("max-waiters-per-key"), "{error}");
    assert_eq!(c.waiters("c"), [""; 0]);
    assert_eq!(
        c.call("LOCK.MACQUIRE 2 b c four 60000 KEEP 60000"),
        Reply::Nil
    );
    let error = c.error("LOCK.MACQUIRE 2 c d five 60000 BLOCK 0");
    assert!(error.contains("(max-waiters)"), "{error}");
    // Those that have a place already take none.
    let again = server.blocked("LOCK.MACQUIRE 2 a b two 60000 BLOCK 0");
    assert_eq!(c.info("lock_queue_full"), "2");
    c.call("FLUSHALL");
    wait_for("the first one to be passed over", || {
        (c.int("LOCK.RELEASE a one") == 0).then_some(())
    });
    again.fence();
}

fn it_waits_in_its_own_database(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waits = waiting(&server);
    let mut elsewhere = server.client();
    elsewhere.call("SELECT 1");
    assert!(elsewhere.int("LOCK.MACQUIRE 2 a b other 60000") > 0);
    assert!(waits.is_pending());
    // Now the locks of the other one are there.
    c.call("SWAPDB 0 1");
    wait_for("the new holder", || {
        (c.holders("a") == ["other"]).then_some(())
    });
    assert!(waits.is_pending());
    c.int("LOCK.RELEASE a other");
    c.int("LOCK.RELEASE b other");
    waits.fence();
    assert_eq!(c.holders("b"), ["me"]);
}

fn a_wait_that_would_close_a_cycle_is_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mine = c.int("LOCK.ACQUIRE mine me 60000");
    c.int("LOCK.ACQUIRE b you 60000");
    // This one waits for a key that the other one holds, and the other one for a key of this one.
    let you = server.blocked("LOCK.MACQUIRE 2 a mine you 60000 BLOCK 0");
    let error = c.error("LOCK.MACQUIRE 2 d b me 60000 BLOCK 0");
    assert!(
        error.starts_with("DEADLOCK a cycle of 2 waits: b waits for a token"),
        "{error}"
    );
    assert!(error.ends_with("that waits for mine"), "{error}");
    // Also where nobody holds what it waits for: the other one is ahead.
    let error = c.error("LOCK.MACQUIRE 2 d a me 60000 KEEP 60000");
    assert!(error.starts_with("DEADLOCK "), "{error}");
    let error = c.error("LOCK.ACQUIRE a me 60000 BLOCK 0");
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert_eq!(c.waiters("d"), [""; 0]);
    // A request that does not wait gets null.
    assert_eq!(c.call("LOCK.MACQUIRE 2 d b me 60000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RELEASE mine me"), 1);
    assert!(you.fence() > mine);
}

fn the_holds_of_a_lost_connection_linger(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for waits in [false, true] {
        if waits {
            c.int("LOCK.ACQUIRE b x 60000");
        }
        let mut owner = server.client();
        let id = owner.int("CLIENT ID");
        let line = "LOCK.MACQUIRE 2 a b me 60000 BLOCK 0 LINGER 0";
        thread::scope(|scope| {
            let owner = scope.spawn(|| owner.int(line));
            if waits {
                wait_for("it to wait", || (c.waiters("b") == ["me"]).then_some(()));
                c.int("LOCK.RELEASE b x");
            }
            assert!(owner.join().unwrap() > 0);
        });
        let next = server.blocked("LOCK.MACQUIRE 2 b a next 60000 BLOCK 0");
        c.int(&format!("CLIENT KILL ID {id}"));
        let fence = next.fence();
        assert_held(&mut c, &["a", "b"], "next", fence);
        c.call("FLUSHALL");
    }
}
