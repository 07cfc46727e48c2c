//! A grant that nobody receives is not made.

use std::time::Instant;

use super::fixture::{
    figure, leaves_place, mode, place, places, queued, until_absent, within, Listener, Subscriber,
};
use crate::harness::{Kind, Reply, Server};

on_every_server![
    without_keep_the_place_is_passed_over,
    with_keep_the_place_is_absent_and_resumed,
    a_killed_subscriber_hears_nothing,
    an_unsubscribed_channel_hears_nothing,
    a_subscriber_of_another_channel_does_not_count,
    who_missed_a_message_asks_again,
    an_unheard_conversion_keeps_the_share,
    an_unheard_channel_leaves_a_client_at_its_place,
    many_unheard_places_are_passed_over_in_one_step,
    all_places_of_an_unheard_channel_become_absent_at_once,
    the_graces_of_a_killed_process_run_side_by_side,
    an_unheard_timeout_makes_the_other_places_absent,
    a_subscriber_at_a_replica_does_not_count,
];

fn without_keep_the_place_is_passed_over(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE heard");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 nobody");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 heard");
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "d");
    assert_eq!(c.holders("k"), ["d"]);
    assert_eq!(places(&mut c, "k"), []);
    // The only one is passed over, too: the lock is free.
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 nobody");
    c.int("LOCK.RELEASE k d");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    assert_eq!(c.int("EXISTS k"), 0);
    assert_eq!(figure(&mut c, "held_keys"), 0);
}

fn with_keep_the_place_is_absent_and_resumed(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 nobody KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    assert_eq!(
        place(&mut c, "k", "b").listener,
        Listener::Channel("nobody".into())
    );
    c.int("LOCK.RELEASE k a");
    assert!(place(&mut c, "k", "b").is_absent());
    assert_eq!(mode(&mut c, "k"), "free");
    assert!(d.is_pending());
    let fence = c.int("LOCK.ACQUIRE k b 60000 NOTIFY 0 nobody KEEP 60000");
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(d.fence() > fence);
    // Its grace ends as any other, and the next one has the lock at that moment.
    let next = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    c.int("LOCK.RELEASE k d");
    next.fence();
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 nobody KEEP 60");
    let last = server.blocked("LOCK.ACQUIRE k f 60000 BLOCK 0");
    c.int("LOCK.RELEASE k e");
    assert!(last.is_pending());
    last.fence();
    assert_eq!(places(&mut c, "k"), []);
}

fn a_killed_subscriber_hears_nothing(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for is_one_step in [false, true] {
        for keep in ["", " KEEP 60000"] {
            let sub = Subscriber::new(&server, "SUBSCRIBE c");
            queued(&mut c, &format!("LOCK.ACQUIRE k b 60000 NOTIFY 0 c{keep}"));
            let kill = format!("CLIENT KILL ID {}", sub.id);
            if is_one_step {
                c.multi(&[&kill, "LOCK.RELEASE k a"]);
            } else {
                c.int(&kill);
                c.int("LOCK.RELEASE k a");
            }
            if keep.is_empty() {
                assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
            } else {
                assert!(place(&mut c, "k", "b").is_absent());
                c.int("LOCK.ACQUIRE k b 60000");
                c.int("LOCK.RELEASE k b");
            }
            c.int("LOCK.ACQUIRE k a 60000");
        }
    }
}

fn an_unsubscribed_channel_hears_nothing(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c other");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 other");
    sub.subscribe("UNSUBSCRIBE c");
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "d");
    assert_eq!(sub.so_far(), [""; 0]);
}

fn a_subscriber_of_another_channel_does_not_count(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE cc C");
    sub.subscribe("PSUBSCRIBE d*");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    assert_eq!(sub.so_far(), [""; 0]);
}

fn who_missed_a_message_asks_again(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    // A message that somebody received, and the owner did not read.
    let sub = Subscriber::new(&server, "SUBSCRIBE c");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c KEEP 60000");
    c.int("LOCK.RELEASE k a");
    drop(sub);
    let fence = c.int("LOCK.ACQUIRE k b 60000 NOTIFY 0 c KEEP 60000");
    let holder = c.call("LOCK.INFO k").field("holders").items()[0].clone();
    assert_eq!(holder.field("fence"), Reply::Int(fence));
    assert_eq!(places(&mut c, "k"), []);
    // A subscription that was lost while it waits, with another one behind it.
    let sub = Subscriber::new(&server, "SUBSCRIBE c");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 c KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k e 60000 NOTIFY 0 c KEEP 60000");
    drop(sub);
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 c KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k e 60000 NOTIFY 0 c KEEP 60000");
    assert_eq!(c.waiters("k"), ["d", "e"]);
    c.int("LOCK.RELEASE k b");
    sub.fence("k", "d");
}

fn an_unheard_conversion_keeps_the_share(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    for keep in ["", " KEEP 60000"] {
        c.int("RWLOCK.RLOCK k other 60000");
        queued(
            &mut c,
            &format!("RWLOCK.WLOCK k up 60000 NOTIFY 0 nobody{keep}"),
        );
        let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
        c.int("LOCK.RELEASE k other");
        assert_eq!(mode(&mut c, "k"), "shared");
        if keep.is_empty() {
            r.fence();
            c.int("LOCK.RELEASE k r");
        } else {
            assert_eq!(c.waiters("k"), ["up", "r"]);
            assert_eq!(c.int("RWLOCK.WLOCK k up 60000"), fence);
            assert!(r.is_pending());
        }
    }
}

fn an_unheard_channel_leaves_a_client_at_its_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for is_channel_first in [true, false] {
        let ask = "LOCK.ACQUIRE k b 60000 NOTIFY 0 nobody";
        if is_channel_first {
            queued(&mut c, ask);
        }
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        if !is_channel_first {
            queued(&mut c, ask);
        }
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        c.int("LOCK.RELEASE k a");
        b.fence();
        assert!(d.is_pending());
        c.int("LOCK.RELEASE k b");
        d.fence();
        assert_eq!(places(&mut c, "k"), []);
        c.int("LOCK.RELEASE k d");
        c.int("LOCK.ACQUIRE k a 60000");
    }
}

fn many_unheard_places_are_passed_over_in_one_step(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for n in 0..200 {
        queued(
            &mut c,
            &format!("LOCK.ACQUIRE k t{n} 60000 NOTIFY 0 nobody"),
        );
    }
    leaves_place(&mut c, "LOCK.ACQUIRE k last 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert_eq!(c.waiters("k"), ["last"]);
    assert_eq!(figure(&mut c, "unheard"), 200);
    assert_eq!(figure(&mut c, "passed_over"), 200);
    // The first message says that nobody listens there.
    assert_eq!(figure(&mut c, "published"), 1);
    c.int("LOCK.ACQUIRE k last 60000");
}

fn all_places_of_an_unheard_channel_become_absent_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE heard");
    for key in ["k", "j", "i"] {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    }
    let ask =
        |key, token, words| format!("LOCK.ACQUIRE {key} {token} 60000 NOTIFY 0 nobody{words}");
    for token in ["b", "d", "e"] {
        queued(&mut c, &ask("k", token, " KEEP 60000"));
    }
    queued(&mut c, "LOCK.ACQUIRE k other 60000 NOTIFY 0 heard");
    queued(&mut c, &ask("j", "b", " KEEP 60000"));
    // A client listens here, too.
    queued(&mut c, &ask("j", "d", ""));
    let d = server.blocked("LOCK.ACQUIRE j d 60000 BLOCK 0");
    // A reader behind a place that ends, though the lock does not change.
    c.int("LOCK.RELEASE i a");
    c.int("RWLOCK.RLOCK i a 60000");
    queued(&mut c, &ask("i", "b", ""));
    let reader = server.blocked("RWLOCK.RLOCK i d 60000 BLOCK 0");
    let all = "LOCK.MACQUIRE 2 j l b2 60000 NOTIFY 0 nobody KEEP 60000";
    queued(&mut c, all);

    c.int("LOCK.RELEASE k a");
    assert_eq!(figure(&mut c, "unheard"), 7);
    for (key, token) in [("k", "b"), ("k", "d"), ("k", "e"), ("j", "b"), ("j", "b2")] {
        assert!(place(&mut c, key, token).is_absent(), "{key} {token}");
    }
    let other = Listener::Channel("heard".into());
    assert_eq!(place(&mut c, "k", "other").listener, other);
    reader.fence();
    assert_eq!(places(&mut c, "i"), []);
    let listener = place(&mut c, "j", "d").listener;
    assert!(matches!(listener, Listener::Client(_)), "{listener:?}");
    // Each goes on when its token asks again.
    for token in ["b", "d", "e"] {
        c.int(&ask("k", token, " KEEP 60000"));
        c.int(&format!("LOCK.RELEASE k {token}"));
    }
    sub.fence("k", "other");
    c.int("LOCK.RELEASE j a");
    c.int("LOCK.ACQUIRE j b 60000");
    c.int("LOCK.RELEASE j b");
    d.fence();
}

fn the_graces_of_a_killed_process_run_side_by_side(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    within("three graces of 400 ms", [300, 900], || {
        let process = Subscriber::new(&server, "SUBSCRIBE c");
        c.int("LOCK.ACQUIRE k a 60000");
        for token in ["b", "d", "e"] {
            queued(
                &mut c,
                &format!("LOCK.ACQUIRE k {token} 60000 NOTIFY 0 c KEEP 400"),
            );
        }
        let next = server.blocked("LOCK.ACQUIRE k next 60000 BLOCK 0");
        c.int(&format!("CLIENT KILL ID {}", process.id));
        c.int("LOCK.RELEASE k a");
        let start = Instant::now();
        next.fence();
        let took = start.elapsed();
        c.int("LOCK.RELEASE k next");
        took
    });
}

fn an_unheard_timeout_makes_the_other_places_absent(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE j a 60000");
    queued(&mut c, "LOCK.ACQUIRE j b 60000 NOTIFY 0 nobody KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 20 nobody");
    until_absent(&mut c, "j", "b");
    assert_eq!(places(&mut c, "k"), []);
    // The other one has timed out.
    assert_eq!(figure(&mut c, "unheard"), 1);
}

/// What the module publishes stays on the server, while PUBLISH goes to the replicas, too.
fn a_subscriber_at_a_replica_does_not_count(kind: Kind) {
    let primary = Server::start(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let mut c = primary.client();
    let mut sub = Subscriber::new(&replica, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c KEEP 60000");
    c.int("LOCK.RELEASE k a");
    assert!(place(&mut c, "k", "b").is_absent());
    c.int("PUBLISH c end");
    assert_eq!(sub.text(), "end");
}
