//! An absent place whose turn has come counts as a holder until its token asks again or its grace is
//! over.

use std::time::{Duration, Instant};

use super::fixture::{leaves_place, mode, place, until_gone, within};
use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![
    an_absent_writer_keeps_all_out_until_it_asks,
    the_next_one_is_granted_when_the_grace_of_a_writer_ends,
    the_next_one_is_granted_when_the_grace_ends_during_its_turn,
    an_absent_reader_keeps_writers_out_and_lets_readers_in,
    an_absent_reader_behind_a_writer_has_no_turn_yet,
    graces_of_absent_places_run_side_by_side,
    an_absent_token_does_not_pass_another_absent_one,
    a_deadline_gives_the_turn_to_an_absent_place,
    a_turn_ends_where_the_lock_is_taken_by_rename,
    graces_end_while_writes_are_paused_and_nothing_is_granted,
];

fn an_absent_writer_keeps_all_out_until_it_asks(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let writer = server.blocked("LOCK.ACQUIRE k w 60000 BLOCK 0");
    let reader = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    let fence_of_a = c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.RELEASE k a");
    assert_eq!(mode(&mut c, "k"), "free");
    for line in [
        "LOCK.ACQUIRE k other 60000",
        "RWLOCK.RLOCK k other 60000",
        "RWLOCK.RLOCK k other 60000 BLOCK 1",
    ] {
        assert_eq!(c.call(line), Reply::Nil, "{line}");
    }
    assert!(writer.is_pending() && reader.is_pending());
    let fence = c.int("LOCK.ACQUIRE k b 60000");
    assert!(fence > fence_of_a);
    assert_eq!(c.holders("k"), ["b"]);
    assert!(c.int("PTTL k") > 50_000, "the full ttl from the grant");
    c.int("LOCK.RELEASE k b");
    writer.fence();
    c.int("LOCK.RELEASE k w");
    reader.fence();
    // It asks for a share instead, and a reader enters beside it at once.
    c.int("DEL k");
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let reader = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    c.int("RWLOCK.RLOCK k b 60000");
    reader.fence();
}

fn the_next_one_is_granted_when_the_grace_of_a_writer_ends(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    within("the end of the grace", [150, 210], || {
        c.int("LOCK.ACQUIRE k a 60000");
        let start = Instant::now();
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 150");
        let next = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        c.int("LOCK.RELEASE k a");
        let (reply, at) = next.reply_and_instant();
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
        assert_eq!(c.waiters("k"), [""; 0]);
        c.int("LOCK.RELEASE k d");
        at - start
    });
}

fn the_next_one_is_granted_when_the_grace_ends_during_its_turn(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // The next one comes while the lock is free, so that no hold ends before its grant.
    for next in ["RWLOCK.RLOCK", "RWLOCK.WLOCK"] {
        within("the end of the grace", [150, 210], || {
            c.int("LOCK.ACQUIRE k a 60000");
            let start = Instant::now();
            leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 150");
            c.int("LOCK.RELEASE k a");
            let next = server.blocked(&format!("{next} k d 60000 BLOCK 0"));
            let (reply, at) = next.reply_and_instant();
            assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
            c.int("LOCK.RELEASE k d");
            at - start
        });
    }
}

fn an_absent_reader_keeps_writers_out_and_lets_readers_in(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "RWLOCK.RLOCK k b 60000 KEEP 60000");
    let behind = server.blocked("RWLOCK.RLOCK k r1 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    behind.fence();
    assert!(place(&mut c, "k", "b").is_absent());
    assert_eq!(mode(&mut c, "k"), "shared");
    // Another reader fits beside both.
    c.int("RWLOCK.RLOCK k r2 60000");
    let writer = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    c.int("LOCK.RELEASE k r1");
    c.int("LOCK.RELEASE k r2");
    assert_eq!(mode(&mut c, "k"), "free");
    assert!(writer.is_pending(), "b may come yet");
    assert_eq!(
        c.call("RWLOCK.RLOCK k r3 60000"),
        Reply::Nil,
        "nobody passes the writer"
    );
    c.int("RWLOCK.RLOCK k b 60000");
    assert!(writer.is_pending());
    c.int("LOCK.RELEASE k b");
    writer.fence();
    c.int("LOCK.RELEASE k w");
    within("the grace of a reader", [120, 180], || {
        c.int("LOCK.ACQUIRE k a 60000");
        let start = Instant::now();
        leaves_place(&mut c, "RWLOCK.RLOCK k b 60000 KEEP 120");
        let writer = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
        c.int("LOCK.RELEASE k a");
        let (reply, at) = writer.reply_and_instant();
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
        c.int("LOCK.RELEASE k w");
        at - start
    });
}

fn an_absent_reader_behind_a_writer_has_no_turn_yet(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k r 60000");
    let writer = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    leaves_place(&mut c, "RWLOCK.RLOCK k b 60000 KEEP 60000");
    c.int("LOCK.RELEASE k r");
    // The absent one behind the writer keeps it out of nothing.
    writer.fence();
    let last = server.blocked("RWLOCK.WLOCK k w2 60000 BLOCK 0");
    c.int("LOCK.RELEASE k w");
    assert!(last.is_pending(), "now it is its turn");
    c.int("RWLOCK.RLOCK k b 60000");
    c.int("LOCK.RELEASE k b");
    last.fence();
}

fn graces_of_absent_places_run_side_by_side(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    within("four graces", [200, 300], || {
        c.int("LOCK.ACQUIRE k a 60000");
        for token in ["b1", "b2", "b3", "b4"] {
            let line = format!("LOCK.ACQUIRE k {token} 60000 KEEP 200");
            assert_eq!(c.call(&line), Reply::Nil);
        }
        let start = Instant::now();
        let next = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        c.int("LOCK.RELEASE k a");
        let (reply, at) = next.reply_and_instant();
        assert!(matches!(reply, Reply::Int(_)), "{reply:?}");
        c.int("LOCK.RELEASE k d");
        // The first one was a little earlier.
        at - start + Duration::from_millis(10)
    });
    // An absent one in the middle of the queue loses its grace there, too.
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    leaves_place(&mut c, "LOCK.ACQUIRE k mid 60000 KEEP 50");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    until_gone(&mut c, "k", "mid");
    assert_eq!(c.waiters("k"), ["b", "d"]);
    c.int("LOCK.RELEASE k a");
    b.fence();
    c.int("LOCK.RELEASE k b");
    d.fence();
}

fn an_absent_token_does_not_pass_another_absent_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k d 60000 KEEP 60000");
    leaves_place(&mut c, "RWLOCK.RLOCK k r1 60000 KEEP 60000");
    leaves_place(&mut c, "RWLOCK.RLOCK k r2 60000 KEEP 60000");
    c.int("LOCK.RELEASE k a");
    leaves_place(&mut c, "LOCK.ACQUIRE k d 60000 KEEP 60000");
    leaves_place(&mut c, "RWLOCK.RLOCK k r1 60000 KEEP 60000");
    c.int("LOCK.ACQUIRE k b 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k d 60000 KEEP 60000");
    c.int("LOCK.RELEASE k b");
    c.int("LOCK.ACQUIRE k d 60000");
    c.int("LOCK.RELEASE k d");
    // Of two absent readers the second one may be the first to come.
    c.int("RWLOCK.RLOCK k r2 60000");
    assert_eq!(c.waiters("k"), ["r1"]);
    c.int("RWLOCK.RLOCK k r1 60000");
    assert_eq!(c.holders("k"), ["r2", "r1"]);
}

fn a_deadline_gives_the_turn_to_an_absent_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 80");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 80 KEEP 60000");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    wait_for("the hold to expire", || {
        (mode(&mut c, "k") == "free").then_some(())
    });
    assert!(d.is_pending());
    // Its own hold ends by the deadline, too, and its place was used up.
    c.int("LOCK.ACQUIRE k b 80 KEEP 60000");
    d.fence();
}

fn a_turn_ends_where_the_lock_is_taken_by_rename(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    c.int("LOCK.RELEASE k a");
    c.int("LOCK.ACQUIRE other o 60000");
    c.text("RENAME other k");
    assert_eq!(
        c.call("LOCK.ACQUIRE k b 60000 KEEP 60000"),
        Reply::Nil,
        "another one holds it now"
    );
    assert_eq!(
        (c.holders("k"), c.waiters("k")),
        (vec!["o".into()], vec!["b".into()])
    );
    c.int("LOCK.RELEASE k o");
    c.int("LOCK.ACQUIRE k b 60000");
}

fn graces_end_while_writes_are_paused_and_nothing_is_granted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 40");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    c.text("CLIENT PAUSE 60000 WRITE");
    until_gone(&mut c, "k", "b");
    let start = Instant::now();
    wait_for("some turns of the timer", || {
        assert!(d.is_pending());
        (start.elapsed() > Duration::from_millis(40)).then_some(())
    });
    c.text("CLIENT UNPAUSE");
    d.fence();
}
