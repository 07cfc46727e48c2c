//! Places count against the limits of waiters, absent ones too.

use super::fixture::{figure, leaves_place, queued, until_absent, until_gone, Subscriber};
use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    places_count_against_the_limit_of_a_key,
    places_count_against_the_limit_of_the_server,
    a_limit_of_zero_refuses_every_place,
    each_blocked_client_of_one_token_counts,
    a_request_for_several_keys_counts_once_on_the_server,
    no_more_absent_places_than_max_absent_are_made,
    a_waiter_that_leaves_beyond_max_absent_loses_its_place,
    a_grace_beyond_max_keep_is_an_error,
    long_names_of_several_keys_are_bounded_by_bytes,
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
    // Its own place goes on, and so does its channel. One more request is one more.
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    queued(&mut c, "LOCK.ACQUIRE k absent 60000 NOTIFY 0 c");
    queued(&mut c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
    for token in ["notified", "blocked"] {
        let line = format!("LOCK.ACQUIRE k {token} 60000 BLOCK 0");
        is_full(&mut c, &line, "max-waiters-per-key");
    }
    assert_eq!(c.waiters("k"), ["absent", "notified", "blocked"]);
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
    drop(blocked);
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

/// Sets a limit, by CONFIG where modules have it, else by the load.
fn start_with(kind: Kind, limits: &[(&str, &str)]) -> Server {
    if !kind.is_7_0_or_later() {
        let words: Vec<_> = limits.iter().flat_map(|(name, n)| [*name, *n]).collect();
        return Server::start_with(kind, &words);
    }
    let server = Server::start(kind);
    let mut c = server.client();
    for (name, n) in limits {
        let set = format!("CONFIG SET lock.{name} {n}");
        assert_eq!(c.text(&set), "OK");
    }
    server
}

fn each_blocked_client_of_one_token_counts(kind: Kind) {
    let server = start_with(kind, &[("max-waiters", "5")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let waiting: Vec<_> = (0..5)
        .map(|_| server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0"))
        .collect();
    let full = |c: &mut Client, token: &str| {
        is_full(
            c,
            &format!("LOCK.ACQUIRE k {token} 60000 BLOCK 0"),
            "max-waiters",
        );
    };
    full(&mut c, "b");
    full(&mut c, "d");
    assert_eq!(
        (figure(&mut c, "waiters"), figure(&mut c, "waiting")),
        (1, 5)
    );
    // One that leaves makes room for one.
    c.int(&format!("CLIENT KILL ID {}", waiting[2].id));
    wait_for("it to leave", || {
        (c.info("lock_waiting") == "4").then_some(())
    });
    let one = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    full(&mut c, "e");
    c.int("LOCK.CANCEL k");
    drop((one, waiting));
    assert_eq!(
        (figure(&mut c, "waiting"), figure(&mut c, "waiting_bytes")),
        (0, 0)
    );
}

fn a_request_for_several_keys_counts_once_on_the_server(kind: Kind) {
    let server = start_with(kind, &[("max-waiters", "3"), ("max-waiters-per-key", "2")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let one = server.blocked("LOCK.MACQUIRE 2 k l b 60000 BLOCK 0");
    let two = server.blocked("LOCK.MACQUIRE 2 l k b 60000 BLOCK 0");
    for (line, limit) in [
        ("LOCK.MACQUIRE 2 k l b 60000 BLOCK 0", "max-waiters-per-key"),
        (
            "LOCK.MACQUIRE 2 m k d 60000 KEEP 60000",
            "max-waiters-per-key",
        ),
        ("LOCK.ACQUIRE l d 60000 NOTIFY 0 c", "max-waiters-per-key"),
    ] {
        is_full(&mut c, line, limit);
    }
    c.int("LOCK.ACQUIRE m a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE m b 60000 KEEP 60000");
    is_full(&mut c, "LOCK.ACQUIRE m d 60000 KEEP 60000", "max-waiters");
    assert!(one.is_pending() && two.is_pending());
}

fn no_more_absent_places_than_max_absent_are_made(kind: Kind) {
    let server = start_with(kind, &[("max-absent", "2")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE l a 60000");
    for token in ["b", "d", "b"] {
        leaves_place(&mut c, &format!("LOCK.ACQUIRE k {token} 60000 KEEP 60000"));
    }
    is_full(&mut c, "LOCK.ACQUIRE k e 60000 KEEP 60000", "max-absent");
    is_full(
        &mut c,
        "LOCK.MACQUIRE 2 l k e 60000 KEEP 60000",
        "max-absent",
    );
    // Who waits, and other keys, are not concerned.
    let waits = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    leaves_place(&mut c, "LOCK.ACQUIRE l e 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.CANCEL k TOKEN b"), 1);
    leaves_place(&mut c, "LOCK.ACQUIRE k f 60000 KEEP 60000");
    drop(waits);
}

fn a_waiter_that_leaves_beyond_max_absent_loses_its_place(kind: Kind) {
    let server = start_with(kind, &[("max-absent", "1")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let waiting = ["b", "d"]
        .map(|token| server.blocked(&format!("LOCK.ACQUIRE k {token} 60000 BLOCK 0 KEEP 60000")));
    c.int(&format!("CLIENT KILL ID {}", waiting[0].id));
    until_absent(&mut c, "k", "b");
    c.int(&format!("CLIENT KILL ID {}", waiting[1].id));
    until_gone(&mut c, "k", "d");
    // The same by a timeout.
    assert_eq!(
        c.call("LOCK.ACQUIRE k e 60000 BLOCK 20 KEEP 60000"),
        Reply::Nil
    );
    assert_eq!(c.waiters("k"), ["b"]);
    assert_eq!(figure(&mut c, "waiting"), 1);
}

fn a_grace_beyond_max_keep_is_an_error(kind: Kind) {
    let server = start_with(kind, &[("max-keep", "5000")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for line in [
        "LOCK.ACQUIRE k b 60000 KEEP 5001",
        "RWLOCK.RLOCK k b 60000 BLOCK 0 KEEP 3600000",
        "LOCK.MACQUIRE 2 k l b 60000 NOTIFY 0 c KEEP 5001",
        "LOCK.ACQUIRE free b 60000 KEEP 3600001",
    ] {
        let error = c.error(line);
        assert!(
            error.starts_with("ERR ") && error.contains("lock.max-keep"),
            "{line}: {error}"
        );
    }
    assert_eq!(c.call("LOCK.INFO free"), Reply::Nil);
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 5000");
}

fn long_names_of_several_keys_are_bounded_by_bytes(kind: Kind) {
    let server = start_with(kind, &[("max-waiting-bytes", "1000000")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let name = |n: usize| format!("{n}{}", "x".repeat(50_000));
    let mut made = 0;
    let error = loop {
        let keys: Vec<_> = (0..4).map(|key| name(made * 4 + key)).collect();
        let line = format!(
            "LOCK.MACQUIRE 5 k {} t{made} 60000 KEEP 60000",
            keys.join(" ")
        );
        match c.call(&line) {
            Reply::Nil => made += 1,
            Reply::Error(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        error.starts_with("QUEUEFULL ") && error.contains("(max-waiting-bytes)"),
        "{error}"
    );
    assert_eq!(made, 4, "of 200,000 bytes");
    let bytes = figure(&mut c, "waiting_bytes");
    assert!((800_000..900_000).contains(&bytes), "{bytes}");
    // A short request has room. A place goes on.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.CANCEL k"), 5);
    assert_eq!(figure(&mut c, "waiting_bytes"), 0);
}
