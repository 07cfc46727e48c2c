//! Events in the middle of a sweep.

use std::time::{Duration, Instant};

use super::has_its_ttl;
use crate::harness::{wait_for, Client, Kind, Server};

on_every_server![
    a_sweep_survives_a_flush_in_its_middle,
    a_sweep_survives_a_demotion_in_its_middle,
    a_sweep_survives_a_pause_in_its_middle,
    a_sweep_survives_swapdb_in_its_middle,
];

/// A sweep has repaired the lock in the first database, and has not reached the one in the last
/// database yet.
fn in_the_middle(server: &Server) -> Client {
    let mut c = server.client();
    c.call("SELECT 1");
    c.call("DEBUG POPULATE 150000 other");
    c.in_one_go(&["SELECT 15", "LOCK.ACQUIRE k me 600000", "PERSIST k"]);
    c.in_one_go(&["SELECT 0", "LOCK.ACQUIRE k me 600000", "PERSIST k"]);
    c.call("DEBUG RELOAD");
    has_its_ttl(&mut c, "k", "in the first database");
    c
}

/// The lock of the last database, on a client that stays in it.
fn ttl_of_last(server: &Server) -> i64 {
    let mut last = server.client();
    last.call("SELECT 15");
    last.int("PTTL k")
}

#[track_caller]
fn last_is_repaired(server: &Server) {
    let mut last = server.client();
    last.call("SELECT 15");
    has_its_ttl(&mut last, "k", "in the last database");
}

fn a_sweep_survives_a_flush_in_its_middle(kind: Kind) {
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB"] {
        let server = Server::start(kind);
        let mut c = in_the_middle(&server);
        c.call("SELECT 1");
        assert_eq!(
            ttl_of_last(&server),
            -1,
            "the sweep is too fast for this test"
        );
        c.call(flush);
        if flush == "FLUSHDB" {
            last_is_repaired(&server);
        }
        // The next sweep repairs it.
        c.in_one_go(&[
            "SELECT 9",
            "LOCK.ACQUIRE new me 600000",
            "PERSIST new",
            "DEBUG RELOAD",
        ]);
        has_its_ttl(&mut c, "new", flush);
    }
}

fn a_sweep_survives_a_demotion_in_its_middle(kind: Kind) {
    let server = Server::start(kind);
    let mut c = in_the_middle(&server);
    c.text("REPLICAOF 127.0.0.1 1");
    assert_eq!(
        ttl_of_last(&server),
        -1,
        "the sweep is too fast for this test"
    );
    let start = Instant::now();
    wait_for("some turns of the server's loop", || {
        assert_eq!(ttl_of_last(&server), -1, "a replica repairs nothing");
        (start.elapsed() > Duration::from_millis(50)).then_some(())
    });
    c.text("REPLICAOF NO ONE");
    last_is_repaired(&server);
    // There and back in one step.
    let mut c = in_the_middle(&server);
    c.multi(&["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"]);
    last_is_repaired(&server);
}

/// A paused server must not write: with an append-only file, it would abort.
fn a_sweep_survives_a_pause_in_its_middle(kind: Kind) {
    let server = Server::start_with(kind, &["--appendonly", "yes"]);
    in_the_middle(&server);
    let start = Instant::now();
    last_is_repaired(&server);
    let usual = start.elapsed();
    let mut c = in_the_middle(&server);
    c.text("CLIENT PAUSE 60000 WRITE");
    let start = Instant::now();
    wait_for("twice the time of the rest of a sweep", || {
        assert_eq!(ttl_of_last(&server), -1);
        (start.elapsed() > usual * 2).then_some(())
    });
    c.text("CLIENT UNPAUSE");
    last_is_repaired(&server);
}

/// The lock of the last database is then in the first one, which the sweep has finished.
fn a_sweep_survives_swapdb_in_its_middle(kind: Kind) {
    let server = Server::start(kind);
    let mut c = in_the_middle(&server);
    c.text("SWAPDB 0 15");
    assert_eq!(c.int("PTTL k"), -1, "the sweep is too fast for this test");
    has_its_ttl(&mut c, "k", "after SWAPDB");
}
