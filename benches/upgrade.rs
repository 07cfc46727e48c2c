//! A rolling upgrade of six shards under load, by the steps of docs/UPGRADING.md: whether all holds
//! are kept, and how long clients pause because of it. Strings with a ttl go through the same.
//!
//! `BENCH_BEFORE` names the earlier build of the module.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{name, Fixture};
use crate::harness::{module, wait_for, Kind, Reply, Setup};
use crate::load::token;
use crate::moving::{Follower, Over, IS_BEFORE, IS_MOVING};
use crate::report::{Bound, Report};
use crate::scale::Of;
use crate::shards::{wait_until_it_serves, Shards, OPTIONS};
use crate::stats::{shown_us, Latency, Spread};
use crate::Run;

const SIZE: usize = 6;
const ROUNDS: usize = 3;
/// Keys that clients take and give back all the time, over all shards.
const BUSY: usize = 128;
const TTL_MS: u128 = 600_000;
/// How long pairs are measured before the upgrade.
const BEFORE: Duration = Duration::from_secs(3);
/// Between two steps. By then the client has been sent on from the last one.
const REST: Duration = Duration::from_millis(500);

struct Found {
    /// The version before.
    from: i64,
    seconds: f64,
    kept: f64,
    pairs: [Latency; 2],
}

/// The version of the module, as `MODULE LIST` says it.
fn version(node: &mut Fixture) -> i64 {
    let modules = node.control.call("MODULE LIST");
    // Newer servers have modules of their own.
    let mut all = modules.items().iter();
    let ours = all.find(|module| module.field("name") == "lock".into());
    ours.expect("the module").field("ver").as_int()
}

fn observe(with: &Run, kind: Kind, of: Of, earlier: &Path) -> Found {
    let mut shards = Shards::start(kind, SIZE, &Setup::with_module_at(earlier, &[]));
    let from = version(&mut shards.primaries[0]);
    let held = shards.take_all(of);
    let pair = |n| {
        let key = format!("busy:{n}");
        let owner = token(n);
        [of.take_key(&key, &owner, TTL_MS), of.give_key(&key, &owner)]
    };
    let client = Follower::new(
        shards.primaries[0].server.port,
        (0..BUSY).map(pair).collect(),
    );
    let stage = AtomicU8::new(IS_BEFORE);
    let (seconds, pairs) = thread::scope(|scope| {
        let over = Over(&stage);
        let client = scope.spawn(|| client.follow(&stage));
        thread::sleep(if with.quick { BEFORE / 20 } else { BEFORE });
        let begin = Instant::now();
        stage.store(IS_MOVING, Ordering::SeqCst);
        (0..SIZE).for_each(|shard| shards.upgrade(shard));
        let seconds = begin.elapsed().as_secs_f64();
        drop(over);
        (seconds, client.join().expect("pairs to the end"))
    });
    Found {
        from,
        seconds,
        kept: shards.kept(of, &held),
        pairs,
    }
}

impl Shards {
    /// Takes all keys. Returns the replies: fences.
    fn take_all(&mut self, of: Of) -> Vec<Vec<Reply>> {
        let both = self.primaries.iter_mut().zip(&self.keys);
        let take = |key: &String| of.take_key(key, &token(0), TTL_MS);
        both.map(|(primary, keys)| ask(primary, keys, take))
            .collect()
    }

    /// The share of what was taken that is there, with the same fences.
    fn kept(&mut self, of: Of, taken: &[Vec<Reply>]) -> f64 {
        let (mut kept, mut all) = (0, 0);
        // The replicas lead now.
        for ((node, keys), taken) in self.replicas.iter_mut().zip(&self.keys).zip(taken) {
            let look = |key: &String| match of {
                Of::Locks => format!("LOCK.CHECK {key} {}", token(0)),
                Of::Strings => format!("GET {key}"),
            };
            let found = ask(node, keys, look);
            let is_kept = |(found, taken): &(&Reply, &Reply)| match of {
                Of::Locks => found == taken,
                Of::Strings => found.as_bytes() == token(0).as_bytes(),
            };
            kept += found.iter().zip(taken).filter(is_kept).count();
            all += taken.len();
        }
        kept as f64 / all as f64
    }

    /// The replica first, then a planned failover, then the old primary.
    fn upgrade(&mut self, shard: usize) {
        let (primary, replica) = (&mut self.primaries[shard], &mut self.replicas[shard]);
        let from = version(primary);
        restart(replica);
        replica.server.wait_until_it_follows(&primary.server);
        assert!(version(replica) >= from);
        thread::sleep(REST);
        wait_for("a replica to be ready", || {
            (replica.control.call("CLUSTER FAILOVER") == Reply::Simple("OK".into())).then_some(())
        });
        replica.control.until_info("role", "master");
        thread::sleep(REST);
        restart(primary);
        primary.server.wait_until_it_follows(&replica.server);
        thread::sleep(REST);
    }
}

/// The replies to a line for each key.
fn ask(node: &mut Fixture, keys: &[String], line: impl FnMut(&String) -> String) -> Vec<Reply> {
    let lines: Vec<_> = keys.iter().map(line).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    node.control.in_one_go(&lines)
}

/// With the module of this source.
fn restart(node: &mut Fixture) {
    node.server.shut_down();
    node.start_again_as(Setup::with_module(&[]), &OPTIONS);
    wait_until_it_serves(&mut node.control);
}

pub fn measure(with: &Run) {
    let earlier = match std::env::var_os("BENCH_BEFORE") {
        Some(earlier) => PathBuf::from(earlier),
        None if with.quick => module(),
        None => return println!("upgrade: left out, because BENCH_BEFORE names no earlier build"),
    };
    let mut report = Report::new("upgrade", "A rolling upgrade of six shards", with.quick);
    let mut rows = Vec::new();
    let mut from = 0;
    for &kind in &with.kinds {
        let mut longest = Vec::new();
        for of in [Of::Locks, Of::Strings] {
            let rounds: Vec<_> = (0..with.rounds(ROUNDS))
                .map(|_| observe(with, kind, of, &earlier))
                .collect();
            from = rounds[0].from;
            rows.push(row(kind, of, &rounds, &mut report));
            longest.push(
                rounds
                    .iter()
                    .map(|found| found.pairs[1].at(1.0))
                    .collect::<Vec<_>>(),
            );
            if of == Of::Locks {
                let kept = Spread::of(&rounds.iter().map(|found| found.kept).collect::<Vec<_>>());
                let goal = "holds kept by a rolling upgrade";
                report.goal(kind, goal, "", Bound::AtLeast(1.0), kept);
            }
        }
        let ratio = Spread::of_ratios(&longest[0], &longest[1]);
        let goal = "longest pair during a rolling upgrade against strings";
        report.goal(kind, goal, "", Bound::AtMost(1.5), ratio);
    }
    report.say(&format!(
        "A cluster of six primaries and six replicas goes from version {from} of the module (MODULE LIST) to that of this source, shard by shard: the replica restarts, then CLUSTER FAILOVER, then the old primary restarts. \
         4,800 keys are held meanwhile, and a client takes and gives back 128 others, one after the other. Pairs: p50, p99, longest.",
    ));
    let header = [
        "server",
        "of",
        "seconds",
        "kept",
        "pair before",
        "pair during it",
    ];
    report.table(&header, &rows);
    report.write();
}

fn row(kind: Kind, of: Of, rounds: &[Found], report: &mut Report) -> Vec<String> {
    let spread =
        |of: &dyn Fn(&Found) -> f64| Spread::of(&rounds.iter().map(of).collect::<Vec<_>>());
    let seconds = spread(&|found| found.seconds);
    report.figure(kind, "seconds of a rolling upgrade", of.name(), seconds);
    let mut row = vec![
        name(kind).to_string(),
        of.name().to_string(),
        seconds.shown(1),
        spread(&|found| found.kept).shown(3),
    ];
    for (when, time) in ["before", "during"].into_iter().enumerate() {
        let shown = [(0.5, "p50"), (0.99, "p99"), (1.0, "longest")].map(|(share, quantile)| {
            let us = spread(&|found| found.pairs[when].at(share));
            let measure = format!("pair {time} a rolling upgrade, {quantile}, µs");
            report.figure(kind, &measure, of.name(), us);
            shown_us(us.median)
        });
        row.push(shown.join(", "));
    }
    row
}
