//! FLUSHALL and FLUSHDB under load: every lock is free at once, the next waiters are granted, and
//! every request is answered.

use std::thread::sleep;
use std::time::Duration;

use super::super::harness::{figure, scale, Kind, Server};
use super::load_clients::LoadClients;

on_every_server![many_clients_on_a_server_that_is_flushed];

fn many_clients_on_a_server_that_is_flushed(kind: Kind) {
    const LOCKS: usize = 3;
    let server = Server::start_with(kind, &["--appendonly", "yes"]);
    let clients = LoadClients::new(12, 600 * scale(), LOCKS);
    let mut c = server.client();
    let (flushes, lost) = clients.run_with_losses(&server, |n| {
        let line = [
            "FLUSHALL",
            "FLUSHALL ASYNC",
            "FLUSHDB SYNC",
            "FLUSHDB ASYNC",
        ][n % 4];
        // Other keys make the flush take longer.
        let fill = "for n = 1, 500 do redis.call('SET', 'text' .. n, n) end";
        c.send(&["EVAL", fill, "0"]);
        c.ok(line);
        sleep(Duration::from_millis(2));
    });
    assert!(lost > 0, "no hold was flushed away");
    assert!(
        lost <= flushes * LOCKS,
        "{lost} holds lost by {flushes} flushes"
    );
    figure(
        kind,
        &format!(
            "{flushes} flushes under {} holds: {lost} ended by a flush, each noticed by its owner, no waiter forgotten",
            clients.holds()
        ),
    );
    c.call("FLUSHALL");
    assert_eq!(c.int("DBSIZE"), 0);
}
