//! The histories that are played.

use std::collections::BTreeMap;

use super::dice::{Dice, Kind};
use super::*;
use crate::engine::simulation::enumerate::is_fine;

/// The shortest history that still does what `does` says.
fn shortest(history: &[Step], does: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let mut shortest = history.to_vec();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut has_shrunk = true;
    while std::mem::take(&mut has_shrunk) {
        for at in (0..shortest.len()).rev() {
            let mut shorter = shortest.clone();
            shorter.remove(at);
            if does(&shorter) {
                (shortest, has_shrunk) = (shorter, true);
            }
        }
    }
    std::panic::set_hook(hook);
    shortest
}

pub(super) fn play(settings: &Settings, history: &[Step]) -> Tally {
    let mut cluster = Cluster::new(settings.clone());
    history.iter().for_each(|step| cluster.step(*step));
    cluster.tally
}

/// Plays random histories, with a setting of their own for each seed. Answers what was played, and
/// the first history with a breach.
pub(super) fn play_seeds(
    seeds: std::ops::Range<u64>,
    steps: usize,
    kind: Kind,
) -> (Tally, Option<(u64, Settings, Vec<Step>)>) {
    let (mut tally, mut first) = (Tally::default(), None);
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let settings = dice.settings(kind);
        let mut cluster = Cluster::new(settings.clone());
        let mut history = Vec::new();
        for _ in 0..steps {
            let step = dice.step(&cluster);
            history.push(step);
            if !is_fine(|| cluster.step(step)) {
                println!("seed {seed}, {settings:?}");
                let history = shortest(&history, |one| !is_fine(|| _ = play(&settings, one)));
                println!("{} steps:", history.len());
                history.iter().for_each(|step| println!("  {step:?}"));
                play(&settings, &history);
                panic!("it fails with another history before it");
            }
            if first.is_none() && cluster.tally.breaches > 0 {
                first = Some((seed, settings.clone(), history.clone()));
            }
        }
        tally.add(&cluster.tally);
    }
    (tally, first)
}

pub(super) const NONE: guard::Settings = guard::Settings {
    scope: guard::Scope::Off,
    max_ttl_ms: 0,
    slack_ms: 0,
    members: 3,
    fresh_ms: 1_500,
    without: None,
};

/// The wall clock is fast or slow by up to 1 %, and off by any amount.
pub(super) const ONE: Kind = Kind {
    servers: 1,
    loses_nothing: true,
    must_be_safe: true,
    walls_apart_us: 5_000_000,
    walls_drift: 10,
    guard: NONE,
    lingers: false,
    settings_change: false,
    careless: None,
};

/// Wall clocks that agree.
pub(super) const THREE: Kind = Kind {
    servers: 3,
    walls_apart_us: 500,
    walls_drift: 0,
    ..ONE
};

const THREE_THAT_LOSE: Kind = Kind {
    loses_nothing: false,
    must_be_safe: false,
    ..THREE
};

/// Prints the shortest form of a history with a breach.
pub(super) fn print_breach(found: Option<(u64, Settings, Vec<Step>)>) {
    let (seed, settings, history) = found.expect("no breach was found");
    let has_breach = |history: &[Step]| {
        let mut breaches = 0;
        is_fine(|| breaches = play(&settings, history).breaches) && breaches > 0
    };
    let history = shortest(&history, has_breach);
    println!("two clients believe, seed {seed}, {} steps:", history.len());
    history.iter().for_each(|step| println!("  {step:?}"));
}

#[test]
fn one_server_that_loses_nothing_has_no_breach() {
    let (tally, _) = play_seeds(0..2_000, 500, ONE);
    println!("one server: {tally:?}");
    assert!(tally.believed > 10_000 && tally.crashes > 100);
}

#[test]
fn failovers_that_lose_nothing_have_no_breach() {
    let (tally, _) = play_seeds(0..4_000, 500, THREE);
    println!("three servers: {tally:?}");
    assert!(tally.promotions > 1_000 && tally.continued > 1_000);
}

#[test]
fn failovers_that_lose_records_have_a_breach() {
    let (tally, found) = play_seeds(0..3_000, 500, THREE_THAT_LOSE);
    println!("three servers that lose records: {tally:?}");
    assert!(found.as_ref().is_some_and(|(seed, ..)| *seed < 20));
    print_breach(found);
}

/// The rules of each server hold by its own clock, however wrong it is.
#[test]
fn each_server_keeps_its_rules_by_any_clock() {
    for walls_apart_us in [450_000, 4_000_000] {
        let kind = Kind {
            walls_apart_us,
            walls_drift: 10,
            ..THREE_THAT_LOSE
        };
        let (tally, _) = play_seeds(0..2_000, 500, kind);
        println!("three servers, clocks {walls_apart_us} us off: {tally:?}");
    }
}

/// A known weakness. A fence given ahead of a clock is above what the next server begins with, if
/// that one is promoted within the second and the record of the fence is lost.
#[test]
fn fences_may_fall_over_two_failovers_within_a_second() {
    let ahead = |ms: i64| Clocks {
        wall_ahead_us: ms * 1_000,
        ..Clocks::default()
    };
    let settings = Settings {
        clocks: vec![ahead(0), ahead(400), ahead(-400)],
        ..small(false)
    };
    let steps = [
        Step::Crash(0),
        Step::Promote(1),
        Step::Ask(0, 1, TAKE),
        Step::Crash(1),
        Step::Tick(700),
        Step::Promote(2),
        Step::Ask(1, 2, TAKE),
    ];
    assert_eq!(play(&settings, &steps).overtaken, 1);
    let later = [&steps[..5], &[Step::Tick(101)], &steps[5..]].concat();
    assert_eq!(play(&settings, &later).overtaken, 0);
}

/// No record is lost, but the new primary ends a lease by another clock.
#[test]
fn wall_clocks_that_differ_have_a_breach_without_a_loss() {
    let kind = Kind {
        must_be_safe: false,
        walls_apart_us: 100_000,
        ..THREE
    };
    let (tally, found) = play_seeds(0..200, 500, kind);
    println!("three servers whose wall clocks differ: {tally:?}");
    print_breach(found);
}

/// Two servers, two clients and one key.
pub(super) fn small(loses_nothing: bool) -> Settings {
    Settings {
        clocks: vec![Clocks::default(); 2],
        clients: 2,
        hears_at_once: true,
        loses_nothing,
        must_be_safe: loses_nothing,
        tells_blocked: true,
        timer_is_prompt: true,
        guard: guard::Settings::default(),
        old_primaries_stop: false,
        careless: None,
    }
}

pub(super) const TAKE: What = take(10);

pub(super) const fn take(ttl: u64) -> What {
    take_as(Mode::Exclusive, ttl, None)
}

pub(super) const fn take_as(mode: Mode, ttl: u64, linger: Option<u64>) -> What {
    What::Take {
        name: 0,
        mode,
        ttl,
        limits: Limits::Forever,
        keep: 0,
        linger,
    }
}

/// The owner of a lost grant asks for more on another connection, and is granted that under the
/// same fence, before the timer comes. The timer must not revoke the hold then.
#[test]
fn a_lost_grant_takes_no_later_one_along() {
    let share = take_as(Mode::Shared, 10, None);
    let steps = [
        Step::Ask(0, 0, TAKE),
        Step::Hear(0),
        Step::Ask(1, 0, share),
        Step::Ask(0, 0, share),
        Step::Hear(0),
        Step::Lose(1, true),
        Step::Ask(1, 0, TAKE),
        Step::Ask(0, 0, What::Release(0)),
        Step::Hear(0),
        Step::Tick(0),
        Step::Hear(1),
        Step::Ask(0, 0, share),
        Step::Hear(0),
    ];
    for timer_is_prompt in [true, false] {
        let settings = Settings {
            hears_at_once: false,
            timer_is_prompt,
            ..small(false)
        };
        assert_eq!(play(&settings, &steps).breaches, 0);
    }
}

impl Cluster {
    /// Whether a step may do something here.
    fn changes_by(&self, step: Step) -> bool {
        let is = |s: usize, is_primary| {
            let server = &self.servers[s];
            server.is_up() && server.is_primary == is_primary
        };
        let may_lose = !self.settings.loses_nothing;
        match step {
            Step::Ask(c, ..) => self.clients[c].pending.is_none(),
            Step::Hear(c) | Step::Lose(c, _) => self.clients[c].pending.is_some(),
            Step::Receive(s, _) | Step::Cut(s) | Step::CutUnseen(s) => {
                self.servers[s].link.is_some()
            }
            Step::Crash(s) => self.servers[s].state != State::Down,
            Step::Restart(s, ..) => self.servers[s].state == State::Down,
            Step::Promote(s) => may_lose && is(s, false),
            Step::Demote(s, to) => may_lose && is(s, true) && is(to, true),
            Step::Follow(s, to) => is(s, false) && is(to, true),
            Step::HandOver(to) | Step::FailOver(to) => is(to, false),
            _ => true,
        }
    }
}

/// Plays all histories of so many steps, but those in which a step does nothing: a shorter one is
/// the same. Calls `found` with each one whose last step is the first breach of it. Answers how
/// many there are without one.
pub(super) fn enumerate(
    cluster: &Cluster,
    steps: &[Step],
    depth: u32,
    history: &mut Vec<Step>,
    found: &mut impl FnMut(&[Step]),
) -> u64 {
    let mut count = 0;
    for step in steps.iter().filter(|step| cluster.changes_by(**step)) {
        let mut next = cluster.clone();
        history.push(*step);
        if !is_fine(|| next.step(*step)) {
            let settings = &cluster.settings;
            let history = shortest(history, |one| !is_fine(|| _ = play(settings, one)));
            panic!("{} steps: {history:#?}", history.len());
        }
        if next.tally.breaches > 0 {
            found(history);
        } else {
            count += match depth {
                1 => 1,
                _ => enumerate(&next, steps, depth - 1, history, found),
            };
        }
        history.pop();
    }
    count
}

#[test]
fn the_shortest_breaches_of_two_servers() {
    let steps = [
        Step::Ask(0, 0, TAKE),
        Step::Ask(1, 0, TAKE),
        Step::Ask(1, 1, TAKE),
        Step::Ask(0, 0, What::Release(0)),
        Step::Tick(4),
        Step::Tick(11),
        Step::Receive(1, 1),
        Step::Cut(1),
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
        Step::Restart(0, Disk::Lacks(1), true),
        Step::Promote(1),
        Step::Demote(0, 1),
    ];
    let mut by_length = BTreeMap::<usize, Vec<Vec<Step>>>::new();
    let mut found = |history: &[Step]| {
        let histories = by_length.entry(history.len()).or_default();
        histories.push(history.to_vec());
    };
    let cluster = Cluster::new(small(false));
    let without = enumerate(&cluster, &steps, 5, &mut Vec::new(), &mut found);
    let lengths: Vec<_> = by_length.iter().map(|(n, all)| (*n, all.len())).collect();
    println!("{without} histories without a breach; (steps, breaches): {lengths:?}");
    let shortest_with = |what: &str, faults: &[fn(&Step) -> bool]| {
        let has = |history: &[Step]| faults.iter().all(|fault| history.iter().any(fault));
        let mut histories = by_length.values().flatten();
        let history = histories.find(|one| has(one)).unwrap();
        println!("the shortest {what}, {} steps:", history.len());
        history.iter().for_each(|step| println!("  {step:?}"));
        history.len()
    };
    let crash = |step: &Step| matches!(step, Step::Crash(_));
    let restart = |step: &Step| matches!(step, Step::Restart(..));
    let promote = |step: &Step| matches!(step, Step::Promote(_));
    let demote = |step: &Step| matches!(step, Step::Demote(..));
    assert_eq!(shortest_with("of all", &[]), 3);
    assert_eq!(shortest_with("by a restart", &[restart]), 4);
    assert_eq!(
        shortest_with("where the old primary dies", &[crash, promote]),
        4
    );
    assert_eq!(shortest_with("where it becomes a replica", &[demote]), 4);
}

#[test]
fn all_short_histories_that_lose_nothing_have_no_breach() {
    let steps = [
        Step::Ask(0, 0, TAKE),
        Step::Ask(0, 1, TAKE),
        Step::Ask(1, 0, TAKE),
        Step::Ask(1, 1, TAKE),
        Step::Ask(0, 1, What::Release(0)),
        Step::Lose(1, true),
        Step::Tick(4),
        Step::Tick(11),
        Step::Receive(1, 1),
        Step::HandOver(0),
        Step::HandOver(1),
        Step::FailOver(1),
        Step::Restart(0, Disk::Lacks(0), false),
    ];
    let cluster = Cluster::new(small(true));
    let mut found = |_: &[Step]| {};
    let count = enumerate(&cluster, &steps, 5, &mut Vec::new(), &mut found);
    println!("{count} histories of 5 steps, none with a breach");
}
