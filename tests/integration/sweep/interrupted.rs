//! Events in the middle of a sweep.

use std::time::Instant;

use super::has_its_ttl;
use crate::harness::{for_ms, wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_sweep_survives_a_flush_in_its_middle,
    a_sweep_survives_a_demotion_in_its_middle,
    a_sweep_survives_a_pause_in_its_middle,
    a_sweep_survives_swapdb_in_its_middle,
];

/// A server on which `events` came, in one step, when a sweep had repaired the lock in the first
/// database and not yet reached the one in the last. A machine that stands still may miss that.
fn in_the_middle(kind: Kind, options: &[&str], events: &[&str]) -> (Server, Client) {
    for _ in 0..10 {
        let server = Server::start_with(kind, options);
        let mut c = server.client();
        c.call("SELECT 1");
        c.call("DEBUG POPULATE 150000 other");
        c.in_one_go(&["SELECT 15", "LOCK.ACQUIRE k me 600000", "PERSIST k"]);
        c.in_one_go(&["SELECT 0", "LOCK.ACQUIRE k me 600000", "PERSIST k"]);
        c.call("DEBUG RELOAD");
        has_its_ttl(&mut c, "k", "in the first database");
        let step = [&["SELECT 15", "PTTL k", "SELECT 1"], events].concat();
        if c.multi(&step)[1] == Reply::Int(-1) {
            return (server, c);
        }
    }
    panic!("the sweep is too fast for this test");
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
        let (server, mut c) = in_the_middle(kind, &[], &[flush]);
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
    let (server, mut c) = in_the_middle(kind, &[], &["REPLICAOF 127.0.0.1 1"]);
    for_ms(50, || {
        assert_eq!(ttl_of_last(&server), -1, "a replica repairs nothing");
    });
    c.text("REPLICAOF NO ONE");
    last_is_repaired(&server);
    // There and back in one step.
    let (server, _) = in_the_middle(kind, &[], &["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"]);
    last_is_repaired(&server);
}

/// A paused server must not write: with an append-only file, it would abort.
fn a_sweep_survives_a_pause_in_its_middle(kind: Kind) {
    let options = ["--appendonly", "yes"];
    let (server, _) = in_the_middle(kind, &options, &[]);
    let start = Instant::now();
    last_is_repaired(&server);
    let usual = start.elapsed();
    let (server, mut c) = in_the_middle(kind, &options, &["CLIENT PAUSE 60000 WRITE"]);
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
    let (_server, mut c) = in_the_middle(kind, &[], &["SWAPDB 0 15", "SELECT 0"]);
    has_its_ttl(&mut c, "k", "after SWAPDB");
}
