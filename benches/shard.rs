//! What one shard of a cluster carries, on every server: `cargo bench --bench shard`.
//!
//! - acquisitions and releases per second with 50 clients, one command at a time and 16, on a
//!   primary with its replica;
//! - the processor time of the primary for each, which says what it would carry alone on a machine;
//! - the memory of a held lock.

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;

#[allow(dead_code, unreachable_pub)]
mod load;

use std::thread;
use std::time::{Duration, Instant};

use harness::{Client, Cluster, Kind};
use load::{Connection, Requests};

const SERVERS: [Kind; 4] = [
    Kind::Redis6_2,
    Kind::Redis7_0,
    Kind::Redis8_2,
    Kind::Valkey8_0,
];
const CLIENTS: usize = 50;
/// A larger number would leave no processor time for the server.
const THREADS: usize = 1;
const PIPELINES: [usize; 2] = [1, 16];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(2_000);
const HELD: usize = 200_000;
/// The length of a UUID.
const TOKEN: &str = "0f3c1b2a-8a51-4d0e-9f0b-6f2f0f6f3a11";

fn main() {
    println!("| server | acquired and released/s, one at a time (spread) | CPU µs each | 16 at a time (spread) | CPU µs each | bytes of a held lock |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for kind in SERVERS {
        let cluster = Cluster::start(kind);
        // The report that the tests write.
        cluster.client(0).call("CONFIG SET appendonly no");
        cluster
            .client(harness::SHARDS)
            .call("CONFIG SET appendonly no");
        let tag = cluster.keys_of(0, 1).remove(0);
        let [one, many] = PIPELINES.map(|pipeline| traffic(&cluster, &tag, pipeline));
        let bytes = bytes_of_a_lock(&cluster, &tag);
        println!("| {kind:?} | {one} | {many} | {bytes:.0} |");
    }
}

/// Pairs per second, and the primary's processor time per pair.
fn traffic(cluster: &Cluster, tag: &str, pipeline: usize) -> String {
    let mut control = cluster.client(0);
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let (cpu, begin) = (cpu_us(&mut control), Instant::now());
            let port = cluster.nodes[0].port;
            let pairs: usize = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|n| scope.spawn(move || load(port, tag, n, pipeline)))
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            let pairs = pairs as f64;
            let per_second = pairs / begin.elapsed().as_secs_f64();
            (per_second, (cpu_us(&mut control) - cpu) / pairs)
        })
        .collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [slowest, .., fastest] = &rounds[..] else {
        panic!("two rounds at least");
    };
    let (per_second, cpu) = rounds[ROUNDS / 2];
    let (from, to) = (slowest.0, fastest.0);
    format!("{per_second:.0} ({from:.0} to {to:.0}) | {cpu:.1}")
}

/// Clients that repeatedly acquire and release some locks. Returns the number of pairs.
fn load(port: u16, tag: &str, thread: usize, pipeline: usize) -> usize {
    let mut clients: Vec<_> = (0..CLIENTS / THREADS)
        .map(|n| {
            let keys = (0..pipeline).map(|key| format!("{{{tag}}}:{thread}:{n}:{key}"));
            let keys: Vec<_> = keys.collect();
            let take = |key| format!("LOCK.ACQUIRE {key} {TOKEN} 60000");
            let give = |key| format!("LOCK.RELEASE {key} {TOKEN}");
            let steps = [
                Requests::of(keys.iter().map(take)),
                Requests::of(keys.iter().map(give)),
            ];
            (Connection::to(port), steps)
        })
        .collect();
    let begin = Instant::now();
    let mut pairs = 0;
    while begin.elapsed() < ROUND {
        for step in [0, 1] {
            for (connection, steps) in &mut clients {
                connection.send(steps[step].bytes());
            }
            for (connection, _) in &mut clients {
                assert_eq!(connection.receive(pipeline).yes, pipeline);
            }
        }
        pairs += clients.len() * pipeline;
    }
    pairs
}

/// The server's processor time in microseconds.
fn cpu_us(control: &mut Client) -> f64 {
    let part = |control: &mut Client, field| control.info(field).parse::<f64>().unwrap() * 1e6;
    part(control, "used_cpu_user") + part(control, "used_cpu_sys")
}

fn bytes_of_a_lock(cluster: &Cluster, tag: &str) -> f64 {
    let mut control = cluster.client(0);
    let replica = &cluster.nodes[harness::SHARDS];
    let used = |control: &mut Client| {
        replica.wait_until_it_follows(&cluster.nodes[0]);
        control.info("used_memory").parse::<f64>().unwrap()
    };
    let before = used(&mut control);
    let words = |n: usize| {
        let key = format!("{{{tag}}}:{n:06}");
        ["LOCK.ACQUIRE", &key, TOKEN, "600000"].map(|word| word.as_bytes().to_vec())
    };
    let all: Vec<_> = (0..HELD).map(|n| words(n).to_vec()).collect();
    for some in all.chunks(1_000) {
        control.pipeline(some);
    }
    (used(&mut control) - before) / HELD as f64
}
