//! Places count against the limits of waiters, absent ones too.

use super::fixture::{leaves_place, queued, until_gone, Subscriber};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    places_count_against_the_limit_of_a_key,
    places_count_against_the_limit_of_the_server,
    a_limit_of_zero_refuses_every_place,
];

#[track_caller]
fn is_full(c: &mut Client, line: &str, limit: &str) {
    let error = c.error(line);
    let expected = format!("({limit})");
    assert!(
        error.starts_with("QUEUEFULL ") && error.contains(&expected),
        "{line}: {error}"
    );
}

fn places_count_against_the_limit_of_a_key(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters-per-key", "3"]);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
    let blocked = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0");
    for how in ["KEEP 60000", "BLOCK 0", "BLOCK 0 KEEP 1", "NOTIFY 0 c"] {
        let line = format!("LOCK.ACQUIRE k more 60000 {how}");
        is_full(&mut c, &line, "max-waiters-per-key");
    }
    assert_eq!(c.call("LOCK.ACQUIRE k more 60000"), Reply::Nil);
    assert_eq!(
        c.multi(&["LOCK.ACQUIRE k more 60000 BLOCK 0"]),
        [Reply::Nil]
    );
    // Its own place does not count.
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k absent 60000 NOTIFY 0 c");
    queued(&mut c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
    let more = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0");
    let third = server.blocked("LOCK.ACQUIRE k notified 60000 BLOCK 0");
    // Each request is shown.
    let shown = ["absent", "notified", "notified", "blocked", "blocked"];
    assert_eq!(c.waiters("k"), shown);
    assert_eq!(c.info("lock_waiters"), "3");
    // The holder needs no place.
    c.int("LOCK.ACQUIRE k a 60000 KEEP 60000");
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "absent");
    leaves_place(&mut c, "LOCK.ACQUIRE k more 60000 KEEP 60000");
    is_full(
        &mut c,
        "LOCK.ACQUIRE k last 60000 KEEP 1",
        "max-waiters-per-key",
    );
    // One that is given up frees its entry.
    assert_eq!(c.int("LOCK.RELEASE k more"), 0);
    leaves_place(&mut c, "LOCK.ACQUIRE k last 60000 KEEP 30");
    is_full(
        &mut c,
        "LOCK.ACQUIRE k more 60000 KEEP 1",
        "max-waiters-per-key",
    );
    // And one whose grace is over.
    until_gone(&mut c, "k", "last");
    leaves_place(&mut c, "LOCK.ACQUIRE k more 60000 KEEP 60000");
    drop((blocked, more, third));
}

fn places_count_against_the_limit_of_the_server(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "2"]);
    let mut c = server.client();
    for key in ["k", "l", "m"] {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
    }
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE l b 60000 NOTIFY 0 c");
    for how in ["KEEP 60000", "BLOCK 0", "NOTIFY 0 c"] {
        is_full(
            &mut c,
            &format!("LOCK.ACQUIRE m b 60000 {how}"),
            "max-waiters",
        );
    }
    // A place elsewhere is another place; its own is not.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE l b 60000 NOTIFY 0 c");
    // A grant needs none.
    c.int("LOCK.ACQUIRE free b 60000 KEEP 60000");
    c.int("LOCK.RELEASE l b");
    leaves_place(&mut c, "LOCK.ACQUIRE m b 60000 KEEP 60000");
}

fn a_limit_of_zero_refuses_every_place(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "0"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000 KEEP 1000");
    c.int("LOCK.ACQUIRE k a 60000 NOTIFY 0 c");
    for how in ["KEEP 1000", "NOTIFY 0 c", "BLOCK 0 KEEP 1000"] {
        is_full(
            &mut c,
            &format!("LOCK.ACQUIRE k b 60000 {how}"),
            "max-waiters",
        );
    }
    assert_eq!(c.waiters("k"), [""; 0]);
}
