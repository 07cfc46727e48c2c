//! Millions of holds and waits of every kind, after which the server's memory is the same as
//! before.

use std::time::Duration;

use crate::harness::workload::{words, Command};
use crate::harness::{figure, scale, wait_for, Client, Kind, Raw, Reply, Server};

on_every_server_at_night![memory_does_not_grow_over_many_cycles];

/// Acquisitions, each ended by a release, a deadline, a timeout, a kill or a deletion.
const CYCLES: usize = 200_000;

/// The acquisitions of each kind in one round.
const ON_MANY_KEYS: usize = 4_000;
const ON_ONE_KEY: usize = 2_000;
const SHARED: usize = 1_500;
const EXPIRING: usize = 500;
const WAITERS: usize = 16;
/// So many at once reserve enough space for the others: a hash table that is more than half full
/// may double when it is resized.
const CROWD_OF_WARMING_UP: usize = 64;
const WAITS_OF_EACH: usize = 120;
const TIMEOUTS: usize = 20;
const KILLS: usize = 10;
const ENDS: [&str; 5] = [
    "DEL marked",
    "PEXPIRE marked 1",
    "RENAME marked else",
    "FLUSHDB",
    "SET marked text",
];
const ROUND: usize = ON_MANY_KEYS
    + ON_ONE_KEY
    + SHARED
    + EXPIRING
    + WAITERS * WAITS_OF_EACH
    + TIMEOUTS
    + 2 * KILLS
    + 2 * ENDS.len();

/// The tolerance of used_memory. A leak once in ten thousand cycles would exceed it by the end.
const SLACK: i64 = 2_048;
const SPANS: usize = 3;

fn memory_does_not_grow_over_many_cycles(kind: Kind) {
    // Nothing of the server itself grows in the meantime.
    let options = ["--slowlog-log-slower-than", "-1", "--hz", "100"];
    let server = Server::start_with(kind, &options);
    let rounds = (CYCLES * scale()).div_ceil(ROUND);
    // Tables have their final size from now on.
    pass_on(&server, &mut server.client(), CROWD_OF_WARMING_UP);
    for n in 0..4 {
        round(&server, n);
    }
    // A table may still grow once. A leak goes on.
    let leaks = (0..SPANS).all(|_| growth(kind, &server, rounds) > SLACK);
    assert!(!leaks, "more bytes in each of {SPANS} spans");
}

/// By how many bytes the server's memory grows in so many rounds.
fn growth(kind: Kind, server: &Server, rounds: usize) -> i64 {
    let (before, rss_before) = (used_memory(server), rss(server));
    for n in 0..rounds {
        round(server, n);
    }
    let (after, rss_after) = (used_memory(server), rss(server));
    figure(
        kind,
        &format!(
            "{} cycles: used_memory {before} before and {after} after ({:+} bytes), resident {rss_before} and {rss_after} KiB",
            rounds * ROUND,
            after - before
        ),
    );
    after - before
}

/// The server's used_memory after it has stopped falling. The server takes a while to free its own
/// buffers and tables.
///
/// The history for operators takes memory up to its bounds: LOCK.RESETSTAT empties the window and
/// the most contended keys, and LOCK.LOG is full of the same entries each time.
fn used_memory(server: &Server) -> i64 {
    const LOOKS: usize = 50;
    const ENTRIES: usize = 128;
    let mut c = server.client();
    let forced = ["LOCK.ACQUIRE forced me 100000", "DEL forced"];
    let forced: Vec<_> = (0..ENTRIES).flat_map(|_| forced.map(words)).collect();
    assert_all_granted(&mut c, &forced, forced.len());
    c.call("FLUSHALL");
    c.call("LOCK.RESETSTAT");
    c.call("MEMORY PURGE");
    let (mut lowest, mut looks) = (i64::MAX, 0);
    while looks < LOOKS {
        let used = c.info("used_memory").parse().unwrap();
        looks = if used < lowest { 0 } else { looks + 1 };
        lowest = lowest.min(used);
        std::thread::sleep(Duration::from_millis(20));
    }
    lowest
}

/// The resident memory of the server, in KiB.
fn rss(server: &Server) -> i64 {
    let bytes: i64 = server.client().info("used_memory_rss").parse().unwrap();
    bytes / 1024
}

fn round(server: &Server, n: usize) {
    let c = &mut server.client();
    take_and_give_up(c, n);
    share(c);
    pass_on(server, c, WAITERS);
    time_out(server, c);
    are_gone(server, c);
    end_from_outside(server, c);
    c.until("DBSIZE", 0);
    assert_eq!(server.blocked_clients(), 0);
}

fn take_and_give_up(c: &mut Client, n: usize) {
    let pair = |key: String| {
        let take = words(&format!("LOCK.ACQUIRE {key} me 100000"));
        [take, words(&format!("LOCK.RELEASE {key} me"))]
    };
    let many = (0..ON_MANY_KEYS).flat_map(|i| pair(format!("key-{}", (i + n * 997) % 10_000)));
    assert_all_granted(c, &many.collect::<Vec<_>>(), ON_MANY_KEYS * 2);
    let one = (0..ON_ONE_KEY).flat_map(|_| pair("one".into()));
    assert_all_granted(c, &one.collect::<Vec<_>>(), ON_ONE_KEY * 2);
    let expiring = (0..EXPIRING).map(|i| words(&format!("LOCK.ACQUIRE brief-{i} me 1")));
    assert_all_granted(c, &expiring.collect::<Vec<_>>(), EXPIRING);
}

#[track_caller]
fn assert_all_granted(c: &mut Client, commands: &[Command], expected: usize) {
    let replies = c.pipeline(commands);
    let granted = |reply: &&Reply| matches!(reply, Reply::Int(n) if *n > 0);
    assert_eq!(replies.iter().filter(granted).count(), expected);
}

/// Readers acquire, renew, convert and release.
fn share(c: &mut Client) {
    const TOGETHER: usize = 15;
    let mut commands = Vec::new();
    for _ in 0..SHARED / TOGETHER {
        let mut line = |text: String| commands.push(words(&text));
        for n in 0..TOGETHER {
            // One in three expires before the others.
            let ttl = if n % 3 == 0 { 1 } else { 100_000 };
            line(format!("RWLOCK.RLOCK shared reader-{n} {ttl}"));
        }
        line("LOCK.RENEW shared reader-1 200000".into());
        line("LOCK.INFO shared".into());
        for n in 0..TOGETHER - 1 {
            line(format!("LOCK.RELEASE shared reader-{n}"));
        }
        line("RWLOCK.WLOCK shared reader-14 100000".into());
        line("PERSIST shared".into());
        line("RWLOCK.RLOCK shared reader-14 100000".into());
        line("LOCK.RELEASE shared reader-14".into());
    }
    let replies = c.pipeline(&commands);
    let errors = replies.iter().find(|r| matches!(r, Reply::Error(_)));
    assert_eq!(errors, None);
    assert_eq!(replies.last(), Some(&Reply::Int(1)));
}

/// Many clients take one lock in turn by waiting: a release grants the next one, and the client
/// queues again.
fn pass_on(server: &Server, c: &mut Client, waiters: usize) {
    c.int("LOCK.ACQUIRE passed me 100000");
    let mut waiting: Vec<Raw> = (0..waiters).map(|_| server.raw()).collect();
    for (n, waiter) in waiting.iter_mut().enumerate() {
        let mode = ["LOCK.ACQUIRE", "RWLOCK.RLOCK"][usize::from(n % 4 == 0)];
        let timeout = [0, 100_000][n % 2];
        let wait = format!("{mode} passed w{n} 100000 BLOCK {timeout}");
        let cycle = format!("{wait}\r\nLOCK.RELEASE passed w{n}\r\n");
        waiter.send_bytes(cycle.repeat(WAITS_OF_EACH).as_bytes());
    }
    wait_for("all to wait", || {
        (c.waiters("passed").len() == waiters).then_some(())
    });
    c.int("LOCK.RELEASE passed me");
    for waiter in &mut waiting {
        for _ in 0..WAITS_OF_EACH {
            let fence = waiter.line().unwrap();
            assert!(fence.len() > 10, "{fence}");
            assert_eq!(waiter.line().unwrap(), ":1");
        }
    }
}

fn time_out(server: &Server, c: &mut Client) {
    c.int("LOCK.ACQUIRE held me 100000");
    let mut waiter = server.raw();
    let wait = "LOCK.ACQUIRE held w 100000 BLOCK 1\r\n";
    waiter.send_bytes(wait.repeat(TIMEOUTS).as_bytes());
    for _ in 0..TIMEOUTS {
        assert_eq!(waiter.line().unwrap(), "$-1");
    }
    c.int("LOCK.RELEASE held me");
}

/// Clients are killed while they wait, and at the moment of their grant.
fn are_gone(server: &Server, c: &mut Client) {
    for too_late in [false, true] {
        c.int("LOCK.ACQUIRE left me 100000");
        let mut gone: Vec<Raw> = (0..KILLS)
            .map(|n| {
                let mut raw = server.raw();
                raw.send(&format!("LOCK.ACQUIRE left w{n} 100000 BLOCK 0"));
                raw
            })
            .collect();
        wait_for("all to wait", || {
            (c.waiters("left").len() == KILLS).then_some(())
        });
        if too_late {
            for n in 0..KILLS {
                // The holder releases. The next client is granted, and killed before delivery.
                let next = c.waiters("left")[0].clone();
                let id = gone[next[1..].parse::<usize>().unwrap()].id;
                let holder = c.holders("left")[0].clone();
                assert!(n > 0 || holder == "me");
                let release = format!("LOCK.RELEASE left {holder}");
                c.multi(&[&release, &format!("CLIENT KILL ID {id}")]);
                wait_for("the grant to be taken back or passed on", || {
                    let holders = c.holders("left");
                    (holders.first() != Some(&next)).then_some(())
                });
                if c.waiters("left").is_empty() {
                    break;
                }
            }
        } else {
            for waiter in &gone {
                c.int(&format!("CLIENT KILL ID {}", waiter.id));
            }
        }
        gone.clear();
        wait_for("nobody to wait", || {
            (server.blocked_clients() == 0).then_some(())
        });
        c.call("DEL left");
    }
}

/// If no command of the module ends a hold, the timer grants the next waiter.
fn end_from_outside(server: &Server, c: &mut Client) {
    for end in ENDS {
        c.int("LOCK.ACQUIRE marked me 100000");
        let mut waiter = server.raw();
        waiter.send("LOCK.ACQUIRE marked w 100000 BLOCK 0");
        wait_for("it to wait", || {
            (c.waiters("marked").len() == 1).then_some(())
        });
        c.call(end);
        let reply = waiter.line().unwrap();
        assert!(reply.starts_with([':', '-']), "{reply}");
        c.call("FLUSHALL");
    }
}
