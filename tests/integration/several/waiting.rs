//! A request for several keys that waits: its turn, and the order among others.

use std::thread;

use super::assert_held;
use crate::harness::{wait_for, Kind, Later, Reply, Server};
use crate::places::fixture::{leaves_place, queued, until_gone, Subscriber};

on_every_server![
    what_ends_a_lock_from_outside_grants_it,
    crossing_orders_do_not_wait_for_each_other,
    a_channel_is_told_of_the_first_key,
    limits_count_one_place_at_each_key,
    a_wait_that_would_close_a_cycle_is_refused,
    the_holds_of_a_lost_connection_linger,
];

/// Two keys, and a request for both that waits for the second.
fn waiting(server: &Server) -> Later {
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b x 60000");
    server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0")
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
    // Redis 6.2 cannot be asked who may read a key.
    let named = if kind.is_7_0_or_later() {
        "mine"
    } else {
        "another key"
    };
    let named = format!("that waits for {named}");
    assert!(error.ends_with(&named), "{error}");
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
