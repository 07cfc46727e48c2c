//! Conversions of a shared hold: ahead of the queue with BLOCK, NOTIFY or KEEP, and one at a time.

use super::fixture::{leaves_place, mode, place, queued, until_gone, Subscriber};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    a_conversion_with_keep_waits_ahead_of_the_queue,
    a_conversion_with_notify_waits_ahead_of_the_queue,
    a_conversion_without_any_of_them_waits_nowhere,
    a_second_conversion_gets_deadlock,
    an_absent_conversion_keeps_readers_out_for_its_grace,
    an_absent_conversion_is_granted_when_it_asks,
    a_conversion_whose_token_is_alone_is_granted_at_once,
    a_conversion_that_was_lost_waits_again,
    a_downgrade_of_an_absent_writer,
];

fn a_conversion_with_keep_waits_ahead_of_the_queue(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    leaves_place(&mut c, "RWLOCK.WLOCK k up 60000 KEEP 60000");
    assert_eq!(c.waiters("k"), ["up", "w"]);
    assert_eq!(c.holders("k"), ["up", "other"], "it keeps its share");
    leaves_place(&mut c, "LOCK.ACQUIRE k up 60000 KEEP 60000");
    assert_eq!(c.waiters("k"), ["up", "w"]);
    c.int("LOCK.RELEASE k other");
    assert!(w.is_pending());
    assert_eq!(c.int("RWLOCK.WLOCK k up 60000 KEEP 60000"), fence);
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_eq!(c.waiters("k"), ["w"]);
    c.int("LOCK.RELEASE k up");
    w.fence();
}

fn a_conversion_with_notify_waits_ahead_of_the_queue(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    queued(&mut c, "RWLOCK.WLOCK k up 60000 NOTIFY 0 c");
    assert_eq!(c.waiters("k"), ["up", "w"]);
    c.int("LOCK.RELEASE k other");
    assert_eq!(sub.fence("k", "up"), fence);
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert!(w.is_pending());
}

fn a_conversion_without_any_of_them_waits_nowhere(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    assert_eq!(c.call("RWLOCK.WLOCK k up 60000"), Reply::Nil);
    assert_eq!(c.waiters("k"), [""; 0]);
    // So another one may convert.
    leaves_place(&mut c, "RWLOCK.WLOCK k other 60000 KEEP 60000");
}

fn a_second_conversion_gets_deadlock(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k a 60000");
    c.int("RWLOCK.RLOCK k b 60000");
    c.int("RWLOCK.RLOCK k d 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k a 60000 KEEP 60000");
    for how in [
        "",
        " BLOCK 0",
        " KEEP 1000",
        " BLOCK 5 KEEP 1000",
        " NOTIFY 0 c",
    ] {
        let error = c.error(&format!("RWLOCK.WLOCK k b 60000{how}"));
        assert!(error.starts_with("DEADLOCK "), "{how}: {error}");
        assert_eq!(c.waiters("k"), ["a"], "{how}");
    }
    // Once the first has given it up, the second may.
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert_eq!(c.int("LOCK.RELEASE k a"), 0);
    leaves_place(&mut c, "RWLOCK.WLOCK k b 60000 KEEP 60000");
    c.int("LOCK.RELEASE k d");
    c.int("RWLOCK.WLOCK k b 60000");
    assert_eq!(mode(&mut c, "k"), "exclusive");
}

fn an_absent_conversion_keeps_readers_out_for_its_grace(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k up 60000 KEEP 120");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    assert_eq!(c.call("RWLOCK.RLOCK k late 60000"), Reply::Nil);
    c.int("RWLOCK.RLOCK k other 60000");
    until_gone(&mut c, "k", "up");
    r.fence();
    assert_eq!(c.holders("k"), ["up", "other", "r"]);
    // Then nobody converts any more.
    leaves_place(&mut c, "RWLOCK.WLOCK k other 60000 KEEP 60000");
}

fn an_absent_conversion_is_granted_when_it_asks(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k up 60000 KEEP 60000");
    c.int("LOCK.RELEASE k other");
    // It is alone, and nobody grants it on behalf of it.
    assert_eq!(mode(&mut c, "k"), "shared");
    assert_eq!(c.call("RWLOCK.RLOCK k r 60000"), Reply::Nil);
    // Its share asked for again is the share, and ends the place without KEEP or with it.
    assert_eq!(c.int("RWLOCK.WLOCK k up 60000"), fence);
    assert_eq!(mode(&mut c, "k"), "exclusive");
    assert_eq!(c.waiters("k"), [""; 0]);
}

fn a_conversion_whose_token_is_alone_is_granted_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    assert_eq!(c.int("RWLOCK.WLOCK k up 60000 KEEP 60000"), fence);
    assert_eq!(c.waiters("k"), ["w"]);
    assert!(w.is_pending());
}

fn a_conversion_that_was_lost_waits_again(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k up 60000");
    c.int("RWLOCK.RLOCK k other 60000");
    let up = server.blocked("RWLOCK.WLOCK k up 60000 BLOCK 0 KEEP 60000");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k other", &format!("CLIENT KILL ID {}", up.id)]);
    up.broken();
    wait_for("the share to be back", || {
        (mode(&mut c, "k") == "shared").then_some(())
    });
    assert!(place(&mut c, "k", "up").is_absent());
    assert_eq!(
        (c.holders("k"), c.waiters("k")),
        (vec!["up".into()], vec!["up".into(), "r".into()])
    );
    assert!(r.is_pending());
    assert_eq!(c.int("RWLOCK.WLOCK k up 60000"), fence);
    c.int("LOCK.RELEASE k up");
    r.fence();
}

fn a_downgrade_of_an_absent_writer(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // A token that waits for the exclusive hold asks for a share, and others hold shares.
    c.int("RWLOCK.RLOCK k other 60000");
    leaves_place(&mut c, "RWLOCK.WLOCK k b 60000 KEEP 60000");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    c.int("RWLOCK.RLOCK k b 60000");
    r.fence();
    assert_eq!(c.holders("k"), ["other", "b", "r"]);
    assert_eq!(c.waiters("k"), [""; 0]);
}
