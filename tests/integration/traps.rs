//! Pitfalls of the module API for waiters. Each one has been seen on a real server.

use crate::harness::{packed, wait_for, Kind, Server};

mod cluster;
mod databases;
mod demotion;

on_every_server![a_waiter_that_leaves_during_a_busy_script_is_not_granted];

fn a_waiter_that_leaves_during_a_busy_script_is_not_granted(kind: Kind) {
    let settings = ["--lua-time-limit", "5", "--loglevel", "verbose"];
    let server = Server::start_with(kind, &settings);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let mut script = server.busy_with(&packed(&["EVAL", "while true do end", "0"]));
    let closed = format!("Client closed connection id={} ", b.id);
    drop(b);
    wait_for("the server to notice it while the script runs", || {
        server.log().contains(&closed).then_some(())
    });
    assert_eq!(c.text("SCRIPT KILL"), "OK");
    assert!(script.line().unwrap().starts_with("-ERR"));
    c.int("LOCK.RELEASE k a");
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}
