//! Many clients on a few locks in several databases. Some pipeline random commands, some wait for
//! locks, and one moves the locks between keys and databases.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::client::Reply;
use super::server::{wait_for, Server};
use super::workload::{self, Tally};

/// The number of databases in use.
const DATABASES: usize = 3;

const WAITERS: u64 = 6;

/// The totals of all clients.
#[derive(Debug, Default)]
pub struct LoadTotals {
    /// Commands.
    pub ops: usize,
    /// Grants to waiters.
    pub waited: usize,
    pub largest_fence: i64,
}

impl LoadTotals {
    pub fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.waited += other.waited;
        self.largest_fence = self.largest_fence.max(other.largest_fence);
    }
}

/// Lets the clients send about `ops` commands while `meanwhile` runs. Then waits until no deadline
/// changes the state any more.
#[track_caller]
pub fn run(server: &Server, seed: u64, ops: usize, meanwhile: impl FnOnce()) -> LoadTotals {
    let (done, others, waited) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let (done, others, waited) = (&done, &others, &waited);
    let totals = thread::scope(|scope| {
        let busy: Vec<_> = (0..DATABASES)
            .map(|db| {
                let seed = seed * 100 + db as u64;
                scope.spawn(move || busy(server, seed, db, ops / DATABASES))
            })
            .collect();
        let waiters: Vec<_> = (0..WAITERS)
            .map(|n| scope.spawn(move || waiter(server, seed * 100 + 10 + n, done, others, waited)))
            .collect();
        let mover = scope.spawn(move || mover(server, seed * 100 + 50, done, others));
        meanwhile();
        let tallies: Vec<_> = busy.into_iter().map(|client| client.join()).collect();
        // The other clients are fast.
        wait_for("some grants to those who wait", || {
            (waited.load(Ordering::Relaxed) >= ops / 500).then_some(())
        });
        done.store(true, Ordering::Relaxed);
        let waited: Vec<_> = waiters.into_iter().map(|client| client.join()).collect();
        mover.join().unwrap();
        let mut totals = LoadTotals::default();
        for tally in tallies {
            let tally: Tally = tally.unwrap();
            tally.assert_rich(ops / DATABASES);
            totals.largest_fence = totals.largest_fence.max(tally.largest_fence);
        }
        for fences in waited {
            let fences: Vec<i64> = fences.unwrap();
            totals.waited += fences.len();
            let largest = fences.into_iter().max().unwrap_or_default();
            totals.largest_fence = totals.largest_fence.max(largest);
        }
        totals
    });
    let mut c = server.client();
    for db in 0..=DATABASES {
        c.call(&format!("SELECT {db}"));
        workload::settle(&mut c);
    }
    LoadTotals {
        ops: ops / DATABASES * DATABASES + others.load(Ordering::Relaxed),
        ..totals
    }
}

/// Sends random commands in pipelines.
fn busy(server: &Server, seed: u64, db: usize, ops: usize) -> Tally {
    let mut c = server.client();
    c.call(&format!("SELECT {db}"));
    workload::play(&mut c, seed, ops)
}

/// Waits for locks, holds them for a moment, and ends the holds in various ways. Returns the
/// fences.
fn waiter(
    server: &Server,
    seed: u64,
    done: &AtomicBool,
    sent: &AtomicUsize,
    waited: &AtomicUsize,
) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut c = server.client();
    let mut fences = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let key = format!("k{}", random.random_range(0..6));
        let take = ["LOCK.ACQUIRE", "RWLOCK.RLOCK", "RWLOCK.WLOCK"][random.random_range(0..3)];
        let (ttl, timeout) = (random.random_range(1..30), random.random_range(1..30));
        // Some waiters share a token with each other or with a client of the pipelines.
        let token = format!("t{}", random.random_range(0..8));
        c.call(&format!("SELECT {}", random.random_range(0..DATABASES)));
        let limit = match take == "LOCK.ACQUIRE" && random.random_bool(0.5) {
            true => format!(" LIMIT {}", random.random_range(1..5)),
            false => String::new(),
        };
        let line = format!("{take} {key} {token} {ttl}{limit} BLOCK {timeout}");
        match c.call(&line) {
            Reply::Int(fence) => {
                fences.push(fence);
                waited.fetch_add(1, Ordering::Relaxed);
            }
            Reply::Nil => {}
            Reply::Error(error) => {
                let expected = ["WRONGTYPE", "DEADLOCK"];
                assert!(
                    expected.iter().any(|e| error.starts_with(e)),
                    "{line}: {error}"
                );
            }
            other => panic!("{line}: {other:?}"),
        }
        let end = match random.random_range(0..4) {
            0 => format!("DEL {key}"),
            1 => format!("LOCK.RENEW {key} {token} 5"),
            _ => format!("LOCK.RELEASE {key} {token}"),
        };
        c.call(&end);
        sent.fetch_add(3, Ordering::Relaxed);
    }
    fences
}

/// Moves locks and whole databases under the waiters, and disconnects some of them.
fn mover(server: &Server, seed: u64, done: &AtomicBool, sent: &AtomicUsize) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut c = server.client();
    while !done.load(Ordering::Relaxed) {
        let (from, to) = (random.random_range(0..6), random.random_range(0..6));
        let db = random.random_range(0..DATABASES);
        let other = (db + 1) % DATABASES;
        let line = match random.random_range(0..8) {
            0 => format!("SWAPDB {db} {other}"),
            1 | 2 => format!("MOVE k{from} {other}"),
            3 => format!("RENAME k{from} k{to}"),
            4 => format!("UNLINK k{from}"),
            5 => format!("PEXPIRE k{from} 3"),
            6 => format!("EVAL return{{redis.pcall('LOCK.RELEASE','k{from}','t{to}'),redis.pcall('SWAPDB',{db},{other})}} 0"),
            _ => format!("EVAL redis.pcall('MOVE','k{from}',{other});redis.pcall('SET','k{to}','text','PX',3) 0"),
        };
        c.call(&format!("SELECT {db}"));
        let reply = c.call(&line);
        if let Reply::Error(error) = &reply {
            let expected = ["WRONGTYPE", "ERR no such key"];
            assert!(
                expected.iter().any(|e| error.starts_with(e)),
                "{line}: {error}"
            );
        }
        sent.fetch_add(2, Ordering::Relaxed);
        thread::yield_now();
    }
}
