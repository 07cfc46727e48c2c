//! LOCK.CANCEL ends waits and places, and leaves holds.

use super::fixture::{leaves_place, queued, Subscriber};
use crate::harness::{Client, Kind, Later, Reply, Server};

on_every_server![
    cancel_ends_all_that_waits_for_a_key,
    cancel_lets_nobody_enter_and_leaves_the_holds,
    cancel_ends_a_place_for_several_keys_as_a_whole,
    cancel_works_in_transactions_and_scripts,
    cancel_is_a_write_on_its_key,
];

const CANCELLED: &str = "CANCELLED the wait was ended by LOCK.CANCEL";

#[track_caller]
fn is_cancelled(waits: Later) {
    assert_eq!(waits.reply(), Reply::Error(CANCELLED.into()));
}

fn nobody_waits(c: &mut Client) {
    assert_eq!(c.info("lock_waiters"), "0");
    assert_eq!(c.info("lock_waited_keys"), "0");
}

fn cancel_ends_all_that_waits_for_a_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE other a 60000");
    let blocked = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let also = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let reader = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    let elsewhere = server.blocked("LOCK.ACQUIRE other b 60000 BLOCK 0");
    // Three requests of one token, a reader, and a place at which nobody listens.
    assert_eq!(c.int("LOCK.CANCEL k"), 5);
    for waits in [blocked, also, reader] {
        is_cancelled(waits);
    }
    assert_eq!(sub.text(), "cancelled 0 1 k b");
    assert_eq!(c.waiters("k"), [""; 0]);
    assert_eq!(
        (c.holders("k"), c.waiters("other")),
        (vec!["a".into()], vec!["b".into()])
    );
    assert!(elsewhere.is_pending());
    assert_eq!(c.int("LOCK.CANCEL k"), 0);
    assert_eq!(c.int("LOCK.CANCEL other TOKEN b"), 1);
    is_cancelled(elsewhere);
    nobody_waits(&mut c);
    assert_eq!(sub.so_far(), [""; 0]);
}

fn cancel_lets_nobody_enter_and_leaves_the_holds(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.ACQUIRE k a 60000");
    let waits = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let before = c.call("DUMP k");
    assert_eq!(c.int("LOCK.CANCEL k"), 1);
    is_cancelled(waits);
    assert_eq!(c.call("DUMP k"), before);
    assert_eq!(c.int("LOCK.CHECK k a"), fence);
    // The next request of the token begins anew.
    let again = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.int("LOCK.RELEASE k a");
    assert!(again.fence() > fence);
}

fn cancel_ends_a_place_for_several_keys_as_a_whole(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    for cancel in ["LOCK.CANCEL b", "LOCK.CANCEL a TOKEN me", "LOCK.CANCEL d"] {
        c.int("LOCK.ACQUIRE b x 60000");
        let waits = server.blocked("LOCK.MACQUIRE 3 a b d me 60000 BLOCK 0 KEEP 60000");
        queued(&mut c, "LOCK.MACQUIRE 3 a b d me 60000 NOTIFY 0 c");
        let behind = server.blocked("LOCK.ACQUIRE a next 60000 BLOCK 0");
        // The lock behind it goes on in the same step.
        let replies = c.multi(&[cancel, "LOCK.RELEASE a next"]);
        assert_eq!(
            replies[0],
            Reply::Int(if cancel.ends_with('a') { 3 } else { 2 })
        );
        assert_eq!(replies[1], Reply::Int(1), "{cancel}");
        is_cancelled(waits);
        assert_eq!(sub.text(), "cancelled 0 1 a me");
        behind.fence();
        nobody_waits(&mut c);
        assert_eq!(c.holders("b"), ["x"]);
        c.int("LOCK.RELEASE b x");
    }
    // One at which nobody listens counts as one.
    c.int("LOCK.ACQUIRE b x 60000");
    assert_eq!(
        c.call("LOCK.MACQUIRE 2 a b me 60000 KEEP 60000"),
        Reply::Nil
    );
    assert_eq!(c.int("LOCK.CANCEL a"), 1);
    nobody_waits(&mut c);
}

fn cancel_works_in_transactions_and_scripts(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    let waits = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 c");
    let replies = c.multi(&[
        "LOCK.CANCEL k",
        "LOCK.ACQUIRE k e 60000 KEEP 60000",
        "LOCK.CANCEL k",
    ]);
    assert_eq!(replies, [Reply::Int(2), Reply::Nil, Reply::Int(1)]);
    is_cancelled(waits);
    assert_eq!(sub.text(), "cancelled 0 1 k d");
    let waits = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    queued(&mut c, "LOCK.ACQUIRE k d 60000 NOTIFY 0 c");
    let script = "EVAL return(redis.call('LOCK.CANCEL',KEYS[1],'TOKEN',ARGV[1])) 1 k";
    assert_eq!(c.int(&format!("{script} b")), 1);
    is_cancelled(waits);
    assert_eq!(c.int(&format!("{script} d")), 1);
    assert_eq!(sub.text(), "cancelled 0 1 k d");
    nobody_waits(&mut c);
}

fn cancel_is_a_write_on_its_key(kind: Kind) {
    let server = Server::start_with(kind, &["--repl-ping-replica-period", "3600"]);
    let mut c = server.client();
    c.call("SET text v");
    assert!(c.error("LOCK.CANCEL text").starts_with("WRONGTYPE "));
    assert_eq!(c.int("LOCK.CANCEL nothing"), 0);
    for (line, error) in [
        (
            "LOCK.CANCEL",
            "ERR wrong number of arguments for 'LOCK.CANCEL'",
        ),
        ("LOCK.CANCEL k a", "ERR unknown option, expected TOKEN"),
        (
            "LOCK.CANCEL k TOKEN",
            "ERR wrong number of arguments for 'LOCK.CANCEL'",
        ),
        (
            "LOCK.CANCEL k TOKEN a b",
            "ERR wrong number of arguments for 'LOCK.CANCEL'",
        ),
    ] {
        let found = c.error(line);
        let found = found.replace("'lock.cancel'", "'LOCK.CANCEL'");
        assert!(found.starts_with(error), "{line}: {found}");
    }
    let replica = Server::start_replica_of(&server, &[]);
    assert!(replica
        .client()
        .error("LOCK.CANCEL k")
        .starts_with("READONLY "));
    // Waits are not replicated, so neither is their end.
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let offset = c.info("master_repl_offset");
    assert_eq!(c.int("LOCK.CANCEL k"), 1);
    assert_eq!(c.info("master_repl_offset"), offset);
}
