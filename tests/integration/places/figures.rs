//! The figures of places in INFO lock.

use super::fixture::{figure, leaves_place, queued, until_absent, Subscriber};
use crate::harness::{Client, Kind, Server};

on_every_server![gauges_tell_who_listens];

/// All places, and those where a client, a channel and nobody listens.
#[track_caller]
fn gauges(c: &mut Client) -> [i64; 4] {
    // One look, because graces end between two.
    let info = c.text("INFO lock");
    let fields = ["", "_blocked", "_notified", "_absent"];
    fields.map(|kind| {
        let field = format!("lock_waiters{kind}:");
        let mut values = info.lines().filter_map(|line| line.strip_prefix(&field));
        values.next().expect("the field").parse().unwrap()
    })
}

fn gauges_tell_who_listens(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut sub = Subscriber::new(&server, "SUBSCRIBE c");
    assert_eq!(gauges(&mut c), [0, 0, 0, 0]);
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE l a 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    assert_eq!(gauges(&mut c), [1, 0, 0, 1]);
    queued(&mut c, "LOCK.ACQUIRE k notified 60000 NOTIFY 0 c");
    assert_eq!(gauges(&mut c), [2, 0, 1, 1]);
    let blocked = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0 KEEP 60000");
    let second = server.blocked("LOCK.ACQUIRE k blocked 60000 BLOCK 0");
    assert_eq!(gauges(&mut c), [3, 1, 1, 1]);
    leaves_place(&mut c, "LOCK.ACQUIRE l absent 60000 KEEP 60000");
    assert_eq!(gauges(&mut c), [4, 1, 1, 2]);
    assert_eq!(figure(&mut c, "waited_keys"), 2);
    c.int(&format!("CLIENT KILL ID {}", second.id));
    c.int(&format!("CLIENT KILL ID {}", blocked.id));
    until_absent(&mut c, "k", "blocked");
    assert_eq!(gauges(&mut c), [4, 0, 1, 3]);
    c.int("LOCK.RELEASE l absent");
    queued(&mut c, "LOCK.ACQUIRE k absent 60000 NOTIFY 0 c");
    assert_eq!(gauges(&mut c), [3, 0, 2, 1]);
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "absent");
    c.int("LOCK.RELEASE k absent");
    sub.fence("k", "notified");
    assert_eq!(gauges(&mut c), [1, 0, 0, 1]);
    c.int("LOCK.RELEASE k notified");
    c.int("LOCK.ACQUIRE k blocked 60000");
    assert_eq!(gauges(&mut c), [0, 0, 0, 0]);
    assert_eq!(figure(&mut c, "waited_keys"), 0);
    c.text("LOCK.RESETSTAT");
    leaves_place(&mut c, "LOCK.ACQUIRE k absent 60000 KEEP 60000");
    c.text("LOCK.RESETSTAT");
    assert_eq!(gauges(&mut c), [1, 0, 0, 1], "a gauge is not reset");
}
