//! LOCK.TOP CONTENDED: where clients have waited. (The windows of INFO are in `stats`, the bounds of
//! the table in the tests of `core/src/wait/contended.rs`.)

use crate::harness::{Client, Kind, Reply, Server};

on_every_server![contended_keys_come_in_the_order_of_their_waits];

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
    let [(long, 2, [waited, longest, 0]), (short, 1, [least, same, 0])] = &top[..] else {
        panic!("{top:?}");
    };
    assert_eq!([&long[..], &short[..]], ["long", "short"]);
    assert!(*waited >= 90 && *longest >= 60 && waited > longest);
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
