//! LOCK.TOP CONTENDED: where clients have waited. (The windows of INFO are in `stats`, the bounds of
//! the table in the tests of `src/wait/contended.rs`.)

use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    contended_keys_come_in_the_order_of_their_waits,
    every_end_of_a_wait_counts,
];

/// The fields of a line: the key, the number of waits, and three times.
fn line(reply: &Reply) -> (String, i64, [i64; 3]) {
    let key = String::from_utf8(reply.field("key").as_bytes().to_vec()).unwrap();
    let times = ["waited", "longest", "error"].map(|name| reply.field(name).as_int());
    (key, reply.field("waits").as_int(), times)
}

#[track_caller]
fn contended(c: &mut Client) -> Vec<(String, i64, [i64; 3])> {
    let reply = c.call("LOCK.TOP 1000 CONTENDED");
    reply.items().iter().map(line).collect()
}

fn contended_keys_come_in_the_order_of_their_waits(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client_resp3();
    assert_eq!(contended(&mut c), []);
    for key in ["short", "long", "free"] {
        c.int(&format!("LOCK.ACQUIRE {key} me 600000"));
    }
    // Neither a grant at once nor a refusal is a wait, and one that lasts does not count yet.
    c.call("LOCK.ACQUIRE free you 600000");
    let waits = server.blocked("LOCK.ACQUIRE free you 600000 BLOCK 0");
    assert_eq!(contended(&mut c), []);
    c.call("LOCK.ACQUIRE short you 600000 BLOCK 10");
    c.call("LOCK.ACQUIRE long you 600000 BLOCK 30");
    c.call("LOCK.ACQUIRE long you 600000 BLOCK 60");
    let top = contended(&mut c);
    let [(long, long_waits, [waited, longest, 0]), (short, 1, [least, same, 0])] = &top[..] else {
        panic!("{top:?}");
    };
    assert_eq!(
        (long.as_str(), *long_waits, short.as_str()),
        ("long", 2, "short")
    );
    assert!(
        *waited >= 90 && *longest >= 60 && waited > longest,
        "{top:?}"
    );
    assert!(*least >= 10 && least == same, "{top:?}");
    assert_eq!(c.call("LOCK.TOP CONTENDED").items().len(), 2);
    assert_eq!(line(&c.call("LOCK.TOP 1 contended").items()[0]).0, "long");
    // The reply without the option is of those who wait now.
    let now = c.call("LOCK.TOP");
    assert_eq!(now.items()[0].field("key").as_bytes(), b"free");
    c.int("LOCK.RELEASE free me");
    waits.fence();
    assert_eq!(contended(&mut c).len(), 3);
    // A database has its own, until they are exchanged.
    c.call("SELECT 1");
    assert_eq!(contended(&mut c), []);
    c.call("SWAPDB 0 1");
    c.call("FLUSHALL");
    assert_eq!(contended(&mut c).len(), 3);
    c.text("LOCK.RESETSTAT");
    assert_eq!(contended(&mut c), []);
}

fn every_end_of_a_wait_counts(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for key in ["{t}1", "{t}2", "{t}3"] {
        c.int(&format!("LOCK.ACQUIRE {key} me 600000"));
    }
    let counts = |c: &mut Client| {
        let mut all: Vec<_> = contended(c).into_iter().map(|(k, n, _)| (k, n)).collect();
        all.sort();
        all
    };
    let expect = |c: &mut Client, expected: &[(&str, i64)]| {
        let expected: Vec<_> = expected.iter().map(|(k, n)| (k.to_string(), *n)).collect();
        wait_for(&format!("{expected:?}"), || {
            (counts(c) == expected).then_some(())
        });
    };
    // A client that is gone.
    let gone = server.blocked("LOCK.ACQUIRE {t}1 you 600000 BLOCK 0");
    c.call(&format!("CLIENT KILL ID {}", gone.id));
    gone.broken();
    expect(&mut c, &[("{t}1", 1)]);
    // A grant.
    let granted = server.blocked("LOCK.ACQUIRE {t}1 you 600000 BLOCK 0");
    c.int("LOCK.RELEASE {t}1 me");
    granted.fence();
    expect(&mut c, &[("{t}1", 2)]);
    // A time-out, and a grant, of a wait for several keys.
    c.call("LOCK.MACQUIRE 2 {t}2 {t}3 us 600000 BLOCK 5");
    expect(&mut c, &[("{t}1", 2), ("{t}2", 1), ("{t}3", 1)]);
    let granted = server.blocked("LOCK.MACQUIRE 2 {t}2 {t}3 us 600000 BLOCK 0");
    c.int("LOCK.RELEASE {t}2 me");
    c.int("LOCK.RELEASE {t}3 me");
    granted.fence();
    expect(&mut c, &[("{t}1", 2), ("{t}2", 2), ("{t}3", 2)]);
    // A place at which nobody waits.
    c.call("LOCK.ACQUIRE {t}1 poll 600000 KEEP 1");
    c.until_waiters("{t}1", &[]);
    expect(&mut c, &[("{t}1", 2), ("{t}2", 2), ("{t}3", 2)]);
}
