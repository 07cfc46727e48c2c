//! The memory that a client can make the server use, and the time that one command can take.

use std::time::{Duration, Instant};

use crate::harness::workload::words;
use crate::harness::{figure, scale, wait_for, Client, Kind, Reply, Server};

on_every_server![tokens_and_readers_are_bounded_by_maxmemory];
on_every_server_at_night![no_command_is_slow_beside_many_readers];

const MEGABYTE: i64 = 1 << 20;

/// More readers try to acquire at once than the server has memory for.
fn tokens_and_readers_are_bounded_by_maxmemory(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let limit = limit_memory(&mut c, 12 * MEGABYTE);
    let token = "x".repeat(500);
    let (mut taken, mut refused) = (0, 0);
    for n in 0..60 {
        let lines = (0..500).map(|i| words(&format!("RWLOCK.RLOCK k {token}{n}-{i} 1000000")));
        for reply in c.pipeline(&lines.collect::<Vec<_>>()) {
            match reply {
                Reply::Int(_) => taken += 1,
                Reply::Error(error) if error.starts_with("OOM") => refused += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(taken > 5_000 && refused > 5_000, "{taken} and {refused}");
    let used: i64 = c.info("used_memory").parse().unwrap();
    assert!(used < limit + MEGABYTE, "{used} of {limit}");
    // Granted holds can be released as if there were memory.
    assert_eq!(c.int(&format!("LOCK.RELEASE k {token}0-0")), 1);
    assert_eq!(c.int(&format!("LOCK.RENEW k {token}0-1 2000000")), 1);
    assert_eq!(c.int("DEL k"), 1);
    wait_for("the memory to be there again", || {
        let reply = c.call("LOCK.ACQUIRE k me 1000000");
        matches!(reply, Reply::Int(_)).then_some(())
    });
    figure(
        kind,
        &format!("{taken} readers of 500 bytes in 12 MiB, {refused} refused, then released"),
    );
}

fn limit_memory(c: &mut Client, more: i64) -> i64 {
    let used: i64 = c.info("used_memory").parse().unwrap();
    c.call("CONFIG SET maxmemory-policy noeviction");
    c.call(&format!("CONFIG SET maxmemory {}", used + more));
    used + more
}

/// The work of a command on one hold does not grow with the number of others.
fn no_command_is_slow_beside_many_readers(kind: Kind) {
    let readers = 20_000 * scale();
    let server = Server::start(kind);
    let mut c = server.client();
    let start = Instant::now();
    c.send_all((0..readers).map(|n| format!("RWLOCK.RLOCK k reader-{n} {}", 3_000_000 + n)));
    let come = start.elapsed() / u32::try_from(readers).unwrap();
    let mut slowest = ("", Duration::ZERO);
    for line in [
        "RWLOCK.RLOCK k new-N 9000000",
        "RWLOCK.RLOCK k reader-N 9000000",
        "LOCK.RENEW k reader-N 4000000",
        "LOCK.RELEASE k reader-N",
        "LOCK.RELEASE k nobody",
        "RWLOCK.WLOCK k me 1000000",
        "RWLOCK.WLOCK k reader-9999 1000000",
        "LOCK.ACQUIRE k * 1000000",
        "RWLOCK.RLOCK k last-N 9000000 BLOCK 1000",
        "LOCK.RENEW k last-N 5",
        "PTTL k",
        "MEMORY USAGE k",
    ] {
        // The machine may be busy with something else, but not each time.
        let times = (0..20).map(|n| {
            let start = Instant::now();
            c.call(&line.replace('N', &n.to_string()));
            start.elapsed()
        });
        let time = times.min().unwrap_or_default();
        if time > slowest.1 {
            slowest = (line, time);
        }
    }
    assert!(slowest.1 < Duration::from_millis(5), "{slowest:?}");
    figure(
        kind,
        &format!(
            "{readers} readers of one lock, {come:?} each to come; the slowest command for one of them: {slowest:?}"
        ),
    );
}
