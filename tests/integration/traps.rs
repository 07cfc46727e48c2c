//! Pitfalls of the module API for waiters. Each one has been seen on a real server.

use crate::harness::{packed, wait_for, Kind, Server};

mod cluster;
mod databases;
mod demotion;

on_every_server![a_waiter_that_leaves_during_a_busy_script_is_not_granted];

fn a_waiter_that_leaves_during_a_busy_script_is_not_granted(kind: Kind) {
    let server = Server::start_with(kind, &["--lua-time-limit", "5"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let mut script = server.busy_with(&packed(&["EVAL", "while true do end", "0"]));
    drop(b);
    // The server notices it while the script runs.
    let mut turns = 0;
    wait_for("some turns of the server's loop", || {
        turns += i32::from(c.error("PING").starts_with("BUSY"));
        (turns > 5).then_some(())
    });
    assert_eq!(c.text("SCRIPT KILL"), "OK");
    assert!(script.line().unwrap().starts_with("-ERR"));
    c.int("LOCK.RELEASE k a");
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}
