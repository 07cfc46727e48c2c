//! The campaign: real servers under load and faults, each round with a record that judges read. With
//! the guard of locks no two clients may believe at one instant that they hold one lock; a control
//! without it must show some. One server must keep every rule.
//!
//! - [`plan`]: the topologies, the modes, the faults, and what a seed makes of them.
//! - [`single`]: one server, which is disturbed, or ended and started again. [`traffic`] of many clients,
//!   the [`operator`], and the [`wire`] that looks before each request.
//! - [`round`]: several servers and their failover. [`group`] and [`faults`]: a primary with two
//!   replicas. [`partition`]: servers that cannot reach one another. [`sentinels`]: three sentinels
//!   promote. [`shards`]: a cluster. [`clients`]: what goes on meanwhile, [`resources`]: what the locks
//!   protect, and [`watcher`]: what the primary says meanwhile.
//! - [`adapters`]: clients of five languages, as they are by default.
//! - [`journal`]: the record, written while it happens; [`log`] adds the append-only file of one server.
//!   The judges read only that. Of one server it is a [`record`], and the [`model`] judges it. Of several:
//!   [`judge`] of beliefs and fences, and [`foreign`], porcupine, of the resources. [`model_tests`] and
//!   [`judge_tests`] show with forged records that they refuse what they should, and so do the tests of
//!   `tests/judge`.
//! - [`planted`]: faults in the module that the judges must find.
//! - [`short`]: a round of each kind, as a test of every change.
//! - [`report`]: a line per round, and the sums.
//!
//! `make campaign` runs it. These settings choose its size:
//!
//! | setting | default | meaning |
//! | --- | --- | --- |
//! | `CAMPAIGN_ROUNDS` | 2000 | rounds with the guard, and of one server |
//! | `CAMPAIGN_CONTROL` | 300 | rounds without it |
//! | `CAMPAIGN_SECONDS` | | as many rounds as begin in this time, one of eight without the guard |
//! | `CAMPAIGN_SEED` | the time | the seed of the first round; each next one has the next seed |
//! | `CAMPAIGN_SERVERS` | all | `redis-7.0,valkey-9` |
//! | `CAMPAIGN_TOPOLOGIES` | all | `single,group,sentinel,cluster` |
//! | `CAMPAIGN_MODES` | all | `restart,failover,quorum` |
//! | `CAMPAIGN_FAULTS` | all | `behind,twice` |
//! | `CAMPAIGN_BEFORE` | one of this source | the module that the servers have before an upgrade |
//! | `CAMPAIGN_GROUPS` | 16 | groups of servers at one time |
//! | `SOAK_SECONDS` | 4 | how long one server is disturbed |
//! | `CAMPAIGN_KEEP` | 0 | 1: the journals of all rounds stay |
//! | `CAMPAIGN_JUDGE` | | the program of `tests/judge`, for the resources |
//! | `CAMPAIGN_PLANTED` | all | the planted faults to play, by the beginnings of their names |
//! | `CAMPAIGN_INTO` | a temporary folder | where the results and the suspicious journals go |

#![allow(unreachable_pub)] // A test binary has no public API.

#[allow(dead_code, unused_imports)]
#[path = "../harness/mod.rs"]
mod harness;

mod adapters;
mod clients;
mod faults;
mod foreign;
mod group;
mod journal;
mod judge;
mod judge_tests;
mod log;
mod model;
mod model_tests;
mod operator;
mod partition;
mod plan;
mod planted;
mod record;
mod report;
mod requests;
mod resources;
mod round;
mod sentinels;
mod shards;
mod short;
mod single;
mod traffic;
mod watcher;
mod wire;

use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{now_us, setting};
use journal::{read, Journal, Line};
use judge::{judge, Verdict};
use plan::{Choice, Plan, Topology};
use record::Record;
use report::{Report, Row};
use requests::Finding;

#[test]
#[ignore = "make campaign"]
fn failovers_of_real_servers_show_no_overlap() {
    let end = setting("CAMPAIGN_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let (rounds, control) = match end {
        Some(_) => (7_000_000, 1_000_000),
        None => (
            setting("CAMPAIGN_ROUNDS").unwrap_or(2_000),
            setting("CAMPAIGN_CONTROL").unwrap_or(300),
        ),
    };
    let seed: u64 = setting("CAMPAIGN_SEED").unwrap_or_else(now_us);
    let into: PathBuf =
        setting("CAMPAIGN_INTO").unwrap_or(Path::new(env!("CARGO_TARGET_TMPDIR")).join("campaign"));
    fs::create_dir_all(&into).unwrap();
    eprintln!(
        "campaign: CAMPAIGN_SEED={seed}, {}",
        into.join("rounds.tsv").display()
    );
    let choice = Choice::from_settings();
    let groups: u64 = setting("CAMPAIGN_GROUPS").unwrap_or(16);
    let report = Report::into(&into, seed, groups);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..groups {
            scope.spawn(|| loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let is_late = end.is_some_and(|end| Instant::now() >= end);
                if number >= rounds + control || is_late {
                    return;
                }
                // The control is spread over the campaign.
                let before = number * control / (rounds + control);
                let is_control = (number + 1) * control / (rounds + control) > before;
                let of_its_kind = if is_control { before } else { number - before };
                let plan = choice.plan(of_its_kind, seed + number, !is_control);
                report.add(run(plan, &into));
            });
        }
    });
    report.finish();
}

/// Plays a round and judges it. The journal of a suspicious one stays.
fn run(plan: Plan, into: &Path) -> Row {
    let path = into.join(format!("round-{}.jsonl", plan.seed));
    let journal = Journal::create(&path);
    let played = catch_unwind(AssertUnwindSafe(|| round::play(&plan, &journal)));
    let mut row = Row {
        verdict: None,
        findings: Vec::new(),
        plan,
    };
    if played.is_ok() {
        let lines = read(&fs::read_to_string(&path).unwrap());
        (row.verdict, row.findings) = judged(&row.plan, &path, &lines);
    }
    if !row.is_suspicious() && setting("CAMPAIGN_KEEP").unwrap_or(0) == 0 {
        fs::remove_file(&path).unwrap();
    }
    row
}

/// What all judges say of a round.
fn judged(plan: &Plan, path: &Path, lines: &[Line]) -> (Option<Verdict>, Vec<Finding>) {
    if plan.topology != Topology::Single {
        let verdict = judge(lines, plan.mode.slack_ms());
        return (Some(verdict), foreign::judge(path));
    }
    let record = Record::of(lines);
    let (mut found, counts) = model::judge(&record);
    if plan.fault.is_disturbance() && !counts.are_of_every_kind() {
        found.push(Finding {
            judge: "traffic",
            from_us: 0,
            until_us: 0,
            text: format!("not everything was played: {counts:?}"),
        });
    }
    let verdict = Verdict {
        grants: counts.grants,
        requests: record.requests.len(),
        us: lines.last().map_or(0, |line| line.at_us),
        ..Verdict::default()
    };
    (Some(verdict), found)
}

/// What the judges say of one journal: `CAMPAIGN_JOURNAL=round-7.jsonl`.
#[test]
#[ignore = "for a journal that is there"]
fn a_journal_is_judged() {
    let path: PathBuf = setting("CAMPAIGN_JOURNAL").expect("a journal");
    let lines = read(&fs::read_to_string(&path).unwrap());
    let is_of_one = |line: &Line| line.text.contains("topology=single");
    let found = match lines.iter().any(is_of_one) {
        true => model::judge(&Record::of(&lines)).0,
        false => {
            let verdict = judge(&lines, None);
            [verdict.overlaps, verdict.fences, foreign::judge(&path)].concat()
        }
    };
    found.iter().for_each(|one| println!("{one}"));
}
