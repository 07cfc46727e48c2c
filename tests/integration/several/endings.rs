//! A request for several keys that ends without a grant, its place that is kept, and a grant that is lost.

use super::{assert_held, holds};
use crate::harness::{wait_for, Client, Kind, Later, Reply, Server};
use crate::places::fixture::{
    find_place, place, queued, until_absent, until_gone, Place, Subscriber,
};

on_every_server![
    a_timeout_leaves_all_queues,
    a_killed_client_leaves_all_queues,
    client_unblock_leaves_all_queues,
    a_release_gives_up_the_whole_place,
    another_type_at_one_key_ends_the_whole_wait,
    the_loss_of_a_place_lets_the_next_ones_in_at_once,
    a_kept_place_resumes,
    a_kept_place_ends_with_its_grace,
    an_absent_place_stops_all_behind_it,
    an_absent_place_goes_on_in_other_modes,
    a_lost_grant_is_taken_back_whole,
    a_lost_grant_gives_its_kept_place_back,
    an_owner_that_knows_of_one_key_keeps_all,
    a_demotion_ends_the_wait,
];

fn contended(server: &Server, c: &mut Client, options: &str) -> Later {
    c.int("LOCK.ACQUIRE b x 60000");
    server.blocked(&format!("LOCK.MACQUIRE 3 a b c me 60000 {options}"))
}

#[track_caller]
fn nobody_waits(c: &mut Client) {
    for key in ["a", "b", "c"] {
        assert_eq!(c.waiters(key), [""; 0], "{key}");
    }
    assert_eq!(c.info("lock_waiters"), "0");
}

fn a_timeout_leaves_all_queues(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waits = contended(&server, &mut c, "BLOCK 500");
    let [one, two] =
        ["a", "c"].map(|key| server.blocked(&format!("LOCK.ACQUIRE {key} next 60000 BLOCK 0")));
    assert_eq!(waits.reply(), Reply::Nil);
    one.fence();
    two.fence();
    nobody_waits(&mut c);
    assert_eq!(c.info("lock_timed_out"), "1");
    assert_eq!(c.holders("b"), ["x"]);
}

fn a_killed_client_leaves_all_queues(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waits = contended(&server, &mut c, "BLOCK 0");
    let behind = server.blocked("LOCK.ACQUIRE c next 60000 BLOCK 0");
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", waits.id)), 1);
    waits.broken();
    behind.fence();
    nobody_waits(&mut c);
    c.int("LOCK.RELEASE b x");
    assert_eq!(c.int("EXISTS a b"), 0);
}

fn client_unblock_leaves_all_queues(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (how, answer) in [
        ("TIMEOUT", Reply::Nil),
        (
            "ERROR",
            Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into()),
        ),
    ] {
        let waits = contended(&server, &mut c, "BLOCK 0");
        let unblocked = c.int(&format!("CLIENT UNBLOCK {} {how}", waits.id));
        if unblocked == 1 {
            assert_eq!(waits.reply(), answer);
            wait_for("it to leave", || c.waiters("c").is_empty().then_some(()));
            nobody_waits(&mut c);
            c.int("LOCK.RELEASE b x");
        } else {
            assert!(!kind.is_7_2_or_later());
            c.int("LOCK.RELEASE b x");
            waits.fence();
            c.call("FLUSHALL");
        }
    }
}

fn a_release_gives_up_the_whole_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for key in ["a", "b", "c"] {
        let waits = contended(&server, &mut c, "BLOCK 0 KEEP 60000");
        let behind = server.blocked("LOCK.ACQUIRE c next 60000 BLOCK 0");
        assert_eq!(c.int(&format!("LOCK.RELEASE {key} me")), 0);
        // The next one is granted in the same step.
        assert_eq!(c.holders("c"), ["next"]);
        assert_eq!(waits.reply(), Reply::Nil);
        behind.fence();
        nobody_waits(&mut c);
        assert_eq!(c.holders("b"), ["x"]);
        c.call("FLUSHALL");
    }
    // Nothing is published.
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE b x 60000");
    queued(&mut c, "LOCK.MACQUIRE 2 a b me 60000 NOTIFY 0 c");
    assert_eq!(c.int("LOCK.RELEASE a me"), 0);
    assert_eq!(sub.so_far(), [""; 0]);
    nobody_waits(&mut c);
}

fn another_type_at_one_key_ends_the_whole_wait(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    for key in ["a", "b", "c"] {
        let waits = contended(&server, &mut c, "BLOCK 0");
        queued(&mut c, "LOCK.MACQUIRE 3 b a c you 60000 NOTIFY 0 c");
        let free = ["a", "c"].into_iter().find(|free| *free != key).unwrap();
        let behind = server.blocked(&format!("LOCK.ACQUIRE {free} next 60000 BLOCK 0"));
        c.call(&format!("SET {key} x"));
        // A lock that is under none of the keys now does not keep them waiting.
        let Reply::Error(error) = waits.reply() else {
            panic!("{key}");
        };
        assert!(error.starts_with("WRONGTYPE"), "{error}");
        assert_eq!(sub.text(), "wrongtype 0 1 b you");
        behind.fence();
        wait_for("all to be told", || {
            (c.info("lock_waiters") == "0").then_some(())
        });
        c.call("FLUSHALL");
    }
    assert_eq!(sub.so_far(), [""; 0]);
}

fn the_loss_of_a_place_lets_the_next_ones_in_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b x 60000");
    let waits = server.blocked("LOCK.MACQUIRE 2 a b me 60000 BLOCK 0");
    let next = server.blocked("LOCK.MACQUIRE 2 a c next 60000 BLOCK 0");
    let last = server.blocked("LOCK.ACQUIRE c last 60000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE b me"), 0);
    assert_eq!(waits.reply(), Reply::Nil);
    let fence = next.fence();
    assert_held(&mut c, &["a", "c"], "next", fence);
    assert!(last.is_pending());
}

fn a_kept_place_resumes(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let line = "LOCK.MACQUIRE 3 a b c me 60000";
    let waits = contended(&server, &mut c, "BLOCK 500 KEEP 60000");
    let behind = server.blocked("LOCK.ACQUIRE c behind 60000 BLOCK 0");
    assert_eq!(waits.reply(), Reply::Nil);
    for key in ["a", "b", "c"] {
        assert!(place(&mut c, key, "me").is_absent(), "{key}");
    }
    // It asks again, and stands where it stood.
    let again = server.blocked(&format!("{line} BLOCK 0 KEEP 60000"));
    assert_eq!(c.waiters("c"), ["me", "behind"]);
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", again.id)), 1);
    again.broken();
    until_absent(&mut c, "c", "me");
    // Its turn comes while it is not there.
    c.int("LOCK.RELEASE b x");
    assert!(behind.is_pending());
    assert_eq!(c.int("EXISTS a b c"), 0);
    assert_eq!(c.call("LOCK.ACQUIRE b you 60000"), Reply::Nil);
    let fence = c.int(line);
    assert_held(&mut c, &["a", "b", "c"], "me", fence);
    assert_eq!(c.info("lock_resumed"), "2");
    assert!(behind.is_pending());
    c.int("LOCK.RELEASE c me");
    behind.fence();
    // Without KEEP the place ends with a request that does not wait.
    c.call("FLUSHALL");
    c.int("LOCK.ACQUIRE b x 60000");
    assert_eq!(c.call(&format!("{line} KEEP 60000")), Reply::Nil);
    let behind = server.blocked("LOCK.ACQUIRE c behind 60000 BLOCK 0");
    assert_eq!(c.call(line), Reply::Nil);
    assert_eq!(c.holders("c"), ["behind"], "in the same step");
    behind.fence();
    nobody_waits(&mut c);
}

fn a_kept_place_ends_with_its_grace(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b x 60000");
    assert_eq!(c.call("LOCK.MACQUIRE 3 a b c me 60000 KEEP 40"), Reply::Nil);
    let [one, two] =
        ["a", "c"].map(|key| server.later(&format!("LOCK.ACQUIRE {key} next 60000 BLOCK 0")));
    one.fence();
    two.fence();
    until_gone(&mut c, "b", "me");
    nobody_waits(&mut c);
    assert_eq!(c.info("lock_passed_over"), "1");
}

fn an_absent_place_stops_all_behind_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b x 60000");
    let shared = "MODES SHARED SHARED";
    let line = format!("LOCK.MACQUIRE 2 a b me 60000 {shared}");
    assert_eq!(c.call(&format!("{line} KEEP 60000")), Reply::Nil);
    assert_eq!(c.call("RWLOCK.RLOCK a reader 60000"), Reply::Nil);
    let reader = server.blocked("RWLOCK.RLOCK b reader 60000 BLOCK 0");
    c.int("LOCK.RELEASE b x");
    assert!(reader.is_pending());
    assert!(c.int(&line) > 0);
    assert_eq!(c.holders("b"), ["me", "reader"], "in the same step");
    reader.fence();
}

fn an_absent_place_goes_on_in_other_modes(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK b x 60000");
    let line = "LOCK.MACQUIRE 2 a b me 60000";
    assert_eq!(c.call(&format!("{line} KEEP 60000")), Reply::Nil);
    assert_eq!(place(&mut c, "b", "me").mode, "exclusive");
    let again = "LOCK.MACQUIRE 2 b a me 60000 MODES SHARED EXCLUSIVE";
    let fence = c.int(again);
    assert_held(&mut c, &["a", "b"], "me", fence);
    assert_eq!(c.holders("b"), ["x", "me"]);
    nobody_waits(&mut c);
}

/// The ways to free the last key of those that a request waits for, in a transaction.
const RELEASES: [&str; 3] = [
    "LOCK.RELEASE b x",
    "EVAL return{redis.call('LOCK.RELEASE',KEYS[1],'x')} 1 b",
    // It takes effect after the transaction.
    "DEL b",
];

fn kill(client: &Later) -> String {
    format!("CLIENT KILL ID {}", client.id)
}

fn a_lost_grant_is_taken_back_whole(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for release in RELEASES {
        let waits = contended(&server, &mut c, "BLOCK 0");
        let next = server.blocked("LOCK.MACQUIRE 2 c a next 60000 BLOCK 0");
        let last = server.blocked("LOCK.ACQUIRE b last 60000 BLOCK 0");
        let replies = c.multi(&[release, &kill(&waits)]);
        assert_eq!(replies[1], Reply::Int(1));
        waits.broken();
        let fence = next.fence();
        last.fence();
        assert_held(&mut c, &["a", "c"], "next", fence);
        for (key, token) in [("a", "next"), ("b", "last"), ("c", "next")] {
            assert_eq!(c.holders(key), [token], "{release}");
        }
        c.call("FLUSHALL");
    }
    assert_ne!(c.info("lock_taken_back"), "0");
}

fn a_lost_grant_gives_its_kept_place_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let waits = contended(&server, &mut c, "BLOCK 0 KEEP 60000");
    let behind = server.blocked("LOCK.ACQUIRE a behind 60000 BLOCK 0");
    c.multi(&["LOCK.RELEASE b x", &kill(&waits)]);
    waits.broken();
    wait_for("the place to be back", || {
        let place = find_place(&mut c, "a", "me");
        place.filter(Place::is_absent)
    });
    for key in ["a", "b", "c"] {
        assert_eq!(holds(&mut c, key), [], "{key}");
        assert!(place(&mut c, key, "me").is_absent(), "{key}");
    }
    assert_eq!(c.waiters("a"), ["me", "behind"]);
    let fence = c.int("LOCK.MACQUIRE 3 a b c me 60000");
    assert_held(&mut c, &["a", "b", "c"], "me", fence);
    assert!(behind.is_pending());
}

fn an_owner_that_knows_of_one_key_keeps_all(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for line in [
        "LOCK.RENEW c me 60000",
        "LOCK.MACQUIRE 3 c b a me 60000",
        "LOCK.RELEASE a me",
    ] {
        let waits = contended(&server, &mut c, "BLOCK 0");
        let replies = c.multi(&["LOCK.RELEASE b x", line, &kill(&waits)]);
        assert!(replies[1].as_int() > 0, "{line}");
        waits.broken();
        wait_for("the client to be gone", || {
            (server.blocked_clients() == 0).then_some(())
        });
        let keys: &[&str] = match line.contains("RELEASE") {
            true => &["b", "c"],
            false => &["a", "b", "c"],
        };
        let fence = c.int("LOCK.CHECK b me");
        assert_held(&mut c, keys, "me", fence);
        c.call("FLUSHALL");
    }
    assert_eq!(c.info("lock_taken_back"), "0");
}

fn a_demotion_ends_the_wait(kind: Kind) {
    let server = Server::start(kind);
    let primary = Server::start(kind);
    let mut c = server.client();
    let waits = contended(&server, &mut c, "BLOCK 0 KEEP 60000");
    assert_eq!(
        c.call("LOCK.MACQUIRE 2 b c you 60000 KEEP 60000"),
        Reply::Nil
    );
    c.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
    match waits.reply() {
        Reply::Error(error) => assert!(
            error.starts_with("UNBLOCKED") || error.starts_with("TRYAGAIN"),
            "{error}"
        ),
        other => panic!("{other:?}"),
    }
    wait_for("all places to end", || {
        (c.info("lock_waiters") == "0").then_some(())
    });
    c.call("REPLICAOF NO ONE");
    assert!(c.int("LOCK.MACQUIRE 2 a c you 60000") > 0);
}
