//! A million held locks that move to another primary of a cluster, beside as many strings with a
//! ttl: how long that takes, how long clients pause because of it, and whether all arrive.
//!
//! Valkey 9 moves all slots in one job. Redis 7.0 moves a slot after the other, and its keys in
//! batches, as redis-cli does.

use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::name;
use crate::harness::Kind;
use crate::moving::{patiently, Over, Scene, BATCH, IS_BEFORE, IS_MOVING, MOVING};
use crate::report::{Bound, Report};
use crate::scale::{kinds, Of};
use crate::stats::{shown_us, Latency, Spread};
use crate::turns::Turns;
use crate::Run;

const HOLDS: usize = 1_000_000;
const QUICK_HOLDS: usize = 20_000;
const ROUNDS: usize = 3;
/// How long pairs are measured before the move.
const BEFORE: Duration = Duration::from_secs(3);

/// What a move was like.
struct Found {
    seconds: f64,
    arrived: f64,
    /// Of slots that move and of slots that stay, before the move and during it.
    pairs: [[Latency; 2]; 2],
    /// Of the source and of the target, in processor time.
    turns_us: [f64; 2],
}

fn observe(with: &Run, kind: Kind, of: Of) -> Found {
    let holds = if with.quick { QUICK_HOLDS } else { HOLDS };
    let mut scene = Scene::start(kind, of, holds);
    let before = scene.sample(0);
    let followers = [scene.follower(0), scene.follower(MOVING)];
    let stage = AtomicU8::new(IS_BEFORE);
    let (seconds, pairs) = thread::scope(|scope| {
        let over = Over(&stage);
        let threads = followers.map(|follower| scope.spawn(|| follower.follow(&stage)));
        thread::sleep(if with.quick { BEFORE / 20 } else { BEFORE });
        scene.turns.iter().for_each(Turns::forget);
        let begin = Instant::now();
        stage.store(IS_MOVING, Ordering::SeqCst);
        scene.move_all();
        let seconds = begin.elapsed().as_secs_f64();
        // The source may still free what it has sent.
        patiently("the source to be empty", || {
            (scene.in_moving_slots(0) == 0).then_some(())
        });
        drop(over);
        let pairs = threads.map(|thread| thread.join().expect("pairs to the end"));
        (seconds, pairs)
    });
    let turns_us = scene.turns.each_ref().map(|turns| turns.longest().cpu_us);
    let arrived = scene.in_moving_slots(1) as f64 / holds as f64;
    assert_eq!(scene.sample(1), before, "holds that moved");
    Found {
        seconds,
        arrived,
        pairs,
        turns_us,
    }
}

fn spread(rounds: &[Found], of: impl Fn(&Found) -> f64) -> Spread {
    Spread::of(&rounds.iter().map(of).collect::<Vec<_>>())
}

/// `p50, p99, longest`
fn shown(rounds: &[Found], slots: usize, when: usize) -> String {
    let shares = [0.5, 0.99, 1.0];
    let shown = shares.map(|share| {
        let us = spread(rounds, |found| found.pairs[slots][when].at(share));
        shown_us(us.median)
    });
    shown.join(", ")
}

fn row(kind: Kind, of: Of, rounds: &[Found]) -> Vec<String> {
    vec![
        name(kind).to_string(),
        of.name().to_string(),
        spread(rounds, |found| found.seconds).shown(1),
        shown(rounds, 0, 0),
        shown(rounds, 0, 1),
        shown(rounds, 1, 1),
        shown_us(spread(rounds, |found| found.turns_us[0]).median),
        shown_us(spread(rounds, |found| found.turns_us[1]).median),
    ]
}

const SLOTS_OF_PAIRS: [&str; 2] = ["slots that move", "slots that stay"];

fn figures(report: &mut Report, kind: Kind, of: Of, rounds: &[Found]) {
    let seconds = spread(rounds, |found| found.seconds);
    report.figure(kind, "seconds of the move", of.name(), seconds);
    for (node, whose) in ["source", "target"].into_iter().enumerate() {
        let measure = format!("longest turn of the {whose}, CPU µs");
        let turn = spread(rounds, |found| found.turns_us[node]);
        report.figure(kind, &measure, of.name(), turn);
    }
    for (slots, which) in SLOTS_OF_PAIRS.into_iter().enumerate() {
        for (when, time) in ["before", "during"].into_iter().enumerate() {
            for (share, quantile) in [(0.5, "p50"), (0.99, "p99"), (1.0, "longest")] {
                let measure = format!("pair {time} the move, {quantile}, µs");
                let subject = format!("{}, {which}", of.name());
                let us = spread(rounds, |found| found.pairs[slots][when].at(share));
                report.figure(kind, &measure, &subject, us);
            }
        }
    }
}

fn goals(report: &mut Report, kind: Kind, [locks, strings]: &[Vec<Found>; 2]) {
    let arrived = spread(locks, |found| found.arrived);
    for bound in [Bound::AtLeast(1.0), Bound::AtMost(1.0)] {
        report.goal(
            kind,
            "holds that arrived of those moved",
            "",
            bound,
            arrived,
        );
    }
    for (slots, which) in SLOTS_OF_PAIRS.into_iter().enumerate() {
        let longest = |rounds: &[Found]| {
            let each = rounds.iter().map(|found| found.pairs[slots][1].at(1.0));
            each.collect::<Vec<_>>()
        };
        let ratio = Spread::of_ratios(&longest(locks), &longest(strings));
        let goal = "longest pair during a move against strings";
        report.goal(kind, goal, which, Bound::AtMost(1.5), ratio);
    }
}

pub fn measure(with: &Run) {
    let mut report = Report::new("moves", "A million locks moved", with.quick);
    report.say(&format!(
        "{HOLDS} held locks in {MOVING} slots move from one primary to another without replicas: on Valkey 9 by one CLUSTER MIGRATESLOTS, on Redis 7.0 by MIGRATE, {BATCH} keys at a time. Beside them are as many strings with a ttl. \
         Two clients do a pair (acquire and release, SET and DEL) about every half millisecond, one on the slots that move, one on others of the source, and follow MOVED and ASK. \
         Of pairs the table shows p50, p99 and the longest; turns are the longest in CPU time. Servers and clients share two cores.",
    ));
    let mut rows = Vec::new();
    let kinds = kinds(with).into_iter();
    for kind in kinds.filter(|kind| matches!(kind, Kind::Redis7_0 | Kind::Valkey9)) {
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..with.rounds(ROUNDS) {
            for (side, of) in sides.iter_mut().zip([Of::Locks, Of::Strings]) {
                let found = observe(with, kind, of);
                println!(
                    "{}",
                    row(kind, of, std::slice::from_ref(&found)).join(" | ")
                );
                side.push(found);
            }
        }
        for (side, of) in sides.iter().zip([Of::Locks, Of::Strings]) {
            figures(&mut report, kind, of, side);
            rows.push(row(kind, of, side));
        }
        goals(&mut report, kind, &sides);
    }
    let header = [
        "server",
        "of",
        "seconds",
        "pair before",
        "pair on slots that move",
        "pair on slots that stay",
        "turn of the source",
        "turn of the target",
    ];
    report.table(&header, &rows);
    report.write();
}
