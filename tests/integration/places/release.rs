//! LOCK.RELEASE gives up the place of a token that holds nothing.

use super::fixture::{leaves_place, mode, place, places, queued, Subscriber};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_release_ends_an_absent_place,
    a_release_ends_a_place_where_clients_block,
    a_release_ends_a_place_with_a_channel_and_publishes_nothing,
    a_release_lets_the_next_one_in,
    a_release_by_a_holder_leaves_its_upgrade_in_the_queue,
    a_release_by_a_token_without_a_place_changes_nothing,
    a_release_in_a_transaction_or_a_script_gives_up_the_place,
];

fn a_release_ends_an_absent_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for command in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
        leaves_place(&mut c, &format!("{command} k b 60000 KEEP 60000"));
        assert_eq!(c.int("LOCK.RELEASE k b"), 0);
        assert_eq!(places(&mut c, "k"), []);
    }
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn a_release_ends_a_place_where_clients_block(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for keep in ["", " KEEP 60000"] {
        let one = server.blocked(&format!("LOCK.ACQUIRE k b 60000 BLOCK 0{keep}"));
        let two = server.blocked(&format!("LOCK.ACQUIRE k b 60000 BLOCK 0{keep}"));
        let other = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        assert_eq!(c.int("LOCK.RELEASE k b"), 0);
        assert_eq!(one.reply(), Reply::Nil);
        assert_eq!(two.reply(), Reply::Nil);
        assert_eq!(c.waiters("k"), ["d"], "{keep}");
        assert!(other.is_pending());
        c.int("LOCK.RELEASE k d");
        assert_eq!(other.reply(), Reply::Nil);
    }
    assert_eq!(server.blocked_clients(), 0);
}

fn a_release_ends_a_place_with_a_channel_and_publishes_nothing(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    for keep in ["", " KEEP 60000"] {
        queued(&mut c, &format!("LOCK.ACQUIRE k b 60000 NOTIFY 0 c{keep}"));
        let also = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        assert_eq!(c.int("LOCK.RELEASE k b"), 0);
        assert_eq!(also.reply(), Reply::Nil);
        assert_eq!(places(&mut c, "k"), []);
    }
    c.int("LOCK.RELEASE k a");
    assert_eq!(sub.so_far(), [""; 0]);
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn a_release_lets_the_next_one_in(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // While it keeps the lock for itself.
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    assert!(d.is_pending());
    assert_eq!(c.int("LOCK.RELEASE k b"), 0);
    d.fence();
    // While it keeps readers out of a share.
    c.int("DEL k");
    c.int("RWLOCK.RLOCK k r 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k b 60000 KEEP 60000");
    let r2 = server.blocked("RWLOCK.RLOCK k r2 60000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE k b"), 0);
    r2.fence();
}

fn a_release_by_a_holder_leaves_its_upgrade_in_the_queue(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k other 60000");
    c.int("RWLOCK.RLOCK k up 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    leaves_place(&mut c, "RWLOCK.WLOCK k up 60000 KEEP 60000");
    assert_eq!(c.waiters("k"), ["up", "w"]);
    assert_eq!(c.int("LOCK.RELEASE k up"), 1);
    assert!(place(&mut c, "k", "up").is_absent());
    assert_eq!(c.holders("k"), ["other"]);
    // It holds nothing now: it waits in the order in which the places were taken.
    assert_eq!(c.waiters("k"), ["w", "up"]);
    c.int("LOCK.RELEASE k other");
    w.fence();
    c.int("LOCK.RELEASE k w");
    assert_eq!(mode(&mut c, "k"), "free");
    // The second release is that of a token that holds nothing.
    assert_eq!(c.int("LOCK.RELEASE k up"), 0);
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    // The same with a client that blocks.
    c.int("RWLOCK.RLOCK k other 60000");
    c.int("RWLOCK.RLOCK k up 60000");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE k up"), 1);
    assert!(up.is_pending());
    c.int("LOCK.RELEASE k other");
    up.fence();
}

fn a_release_by_a_token_without_a_place_changes_nothing(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.RELEASE k d"), 0);
    assert_eq!(c.int("LOCK.RELEASE other b"), 0);
    assert_eq!(c.int("LOCK.RENEW k b 1000"), 0, "a renewal takes nothing");
    assert_eq!(c.waiters("k"), ["b"]);
    c.call("SELECT 1");
    assert_eq!(c.int("LOCK.RELEASE k b"), 0);
    c.call("SELECT 0");
    assert_eq!(c.waiters("k"), ["b"]);
}

fn a_release_in_a_transaction_or_a_script_gives_up_the_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let script = "EVAL return(redis.call('LOCK.RELEASE',KEYS[1],ARGV[1])) 1 k b";
    for is_script in [false, true] {
        c.int("LOCK.ACQUIRE k a 60000");
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let zero = match is_script {
            true => c.call(script),
            false => c.multi(&["LOCK.RELEASE k b"]).remove(0),
        };
        assert_eq!(zero, Reply::Int(0));
        assert_eq!(b.reply(), Reply::Nil);
        wait_for("d alone", || (c.waiters("k") == ["d"]).then_some(()));
        c.int("LOCK.RELEASE k a");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}
