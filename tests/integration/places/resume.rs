//! A later request of a token joins its place, and continues at its position.

use std::time::{Duration, Instant};

use super::fixture::{leaves_place, place, until_gone, within};
use crate::harness::{wait_for, Kind, Server};

on_every_server![
    waited_counts_from_when_the_place_was_taken,
    it_continues_with_the_later_grace,
];

fn waited_counts_from_when_the_place_was_taken(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let start = Instant::now();
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    wait_for("some time", || {
        (place(&mut c, "k", "b").waited_ms >= 50).then_some(())
    });
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
    let waited_ms = place(&mut c, "k", "b").waited_ms;
    let at_most_ms = i64::try_from(start.elapsed().as_millis()).unwrap() + 2;
    assert!((50..=at_most_ms).contains(&waited_ms), "{waited_ms}");
    drop(b);
}

fn it_continues_with_the_later_grace(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    within("the later grace", [80, 180], || {
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
        let start = Instant::now();
        leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 80");
        until_gone(&mut c, "k", "b") - start
    });
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 50");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    let start = Instant::now();
    wait_for("the first grace", || {
        place(&mut c, "k", "b");
        (start.elapsed() > Duration::from_millis(80)).then_some(())
    });
}
