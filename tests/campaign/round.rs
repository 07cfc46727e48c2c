//! A round: servers under load, a fault, and the first new grant after it.
//!
//! The record says `quiet` when all faults have ended, and `over` when clients begin no more work.

use std::sync::atomic::Ordering;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::RngExt;

use super::adapters::{listen, Adapter, Task};
use super::clients::{Caller, Names, Scene, Worker, CLIENTS, KEYS};
use super::group::Group;
use super::journal::Journal;
use super::plan::{Plan, Topology};
use super::sentinels::Watched;
use super::single;
use super::watcher::watch;
use crate::harness::{wait_for, Client, Cluster, Info, Reply, SetWhenDropped};

/// Servers, and what may happen to them.
pub trait Stage {
    /// They grant already.
    fn start(plan: &Plan) -> Self;

    /// The port of the primary.
    fn primary(&self) -> u16;

    fn names(&self) -> Names {
        Names::new(str::to_string)
    }

    /// Answers the port of the next primary.
    fn fail_over(&mut self, director: &mut Director<'_, '_>) -> u16;

    /// The primary that has followed this one meanwhile.
    fn next(&mut self, _: &Director<'_, '_>, primary: u16) -> u16 {
        primary
    }
}

/// What happens on every stage.
pub struct Director<'s, 'p> {
    pub scene: &'s Scene<'p>,
    pub random: StdRng,
}

pub fn play(plan: &Plan, journal: &Journal) {
    if plan.topology == Topology::Single {
        return single::play(plan, journal);
    }
    journal.note_at(0, "driver", 0, "round", &plan.told());
    match plan.topology {
        Topology::Single => unreachable!("it has a stage of its own"),
        Topology::Group => play_on::<Group>(plan, journal),
        Topology::Sentinel => play_on::<Watched>(plan, journal),
        Topology::Cluster => play_on::<Cluster>(plan, journal),
    }
}

fn play_on<S: Stage>(plan: &Plan, journal: &Journal) {
    let mut stage = S::start(plan);
    let scene = &Scene::new(plan, journal, stage.primary(), stage.names());
    thread::scope(|scope| {
        // Also if something here fails, because the scope waits for the clients.
        let _over = SetWhenDropped(&scene.is_over);
        for number in 0..CLIENTS {
            scope.spawn(move || Worker::new(scene, number).live());
        }
        scope.spawn(|| watch(scene));
        let _adapter = plan.adapter.map(|language| {
            let task = Task {
                port: scene.way.port,
                key: "k",
                keys: KEYS,
                clients: 2,
                ttl_ms: plan.max_ttl_ms,
                hold_ms: plan
                    .random(u64::from(u8::MAX))
                    .random_range(50..2 * plan.max_ttl_ms),
            };
            let (adapter, said) = Adapter::start(language, &task);
            scope.spawn(move || listen(language, said, journal));
            adapter
        });
        let mut director = Director {
            scene,
            random: plan.random(0),
        };
        director.pause(300..700);
        let primary = stage.fail_over(&mut director);
        director.note(primary, "quiet", "");
        let primary = director.await_grant(&mut stage, primary);
        // Everybody else is served, too.
        director.pause(600..1_200);
        director.note(primary, "over", "");
    });
}

impl Director<'_, '_> {
    pub fn pause(&mut self, ms: std::ops::Range<u64>) {
        sleep(Duration::from_millis(self.random.random_range(ms)));
    }

    pub fn note(&self, port: u16, what: &str, text: &str) {
        self.scene.journal.note("driver", port, what, text);
    }

    pub fn begin_to_lose(&self) {
        self.scene.is_losing.store(true, Ordering::Relaxed);
    }

    /// Promotes a replica as soon as it has loaded.
    pub fn promote(&self, c: &mut Client, port: u16) -> Instant {
        self.note(port, "promoting", "");
        let promoting = Instant::now();
        wait_for("the promotion", || {
            (c.call("REPLICAOF NO ONE") == Reply::Simple("OK".into())).then_some(())
        });
        self.is_promoted(port);
        promoting
    }

    /// Notes which holds the new primary knows, and has the clients go there.
    pub fn is_promoted(&self, port: u16) {
        self.note(port, "promoted", "");
        self.scene.move_to(port);
        let mut c = Client::connect(port);
        for key in c.call("KEYS *").words::<Vec<_>>() {
            let at_us = self.scene.journal.now_us();
            let info = c.call(&format!("LOCK.INFO {key}"));
            // It is free, or no lock.
            if !matches!(info, Reply::Array(_) | Reply::Map(_)) {
                continue;
            }
            let Info { mode, holders, .. } = Info::of(&info);
            for holder in holders {
                let text = format!("{} {} {mode}", holder.token, holder.ttl_ms);
                let journal = self.scene.journal;
                journal.note_at(at_us, "driver", port, "knows", &text);
            }
        }
    }

    /// An old primary may go on for so long.
    pub fn pause_within_slack(&mut self, promoting: Instant) {
        let plan = self.scene.plan;
        let latest_ms = plan.mode.slack_ms().map(|ms| ms - 150);
        let latest_ms = latest_ms.unwrap_or(2 * plan.max_ttl_ms);
        let until = Duration::from_millis(self.random.random_range(0..latest_ms));
        sleep(until.saturating_sub(promoting.elapsed()));
    }

    /// Waits at a lock that nobody has held. Answers which primary has granted it.
    fn await_grant(&self, stage: &mut impl Stage, mut port: u16) -> u16 {
        let patience = Duration::from_secs(25);
        let mut caller = Caller::new("probe".into(), self.scene.journal, patience);
        let (key, ttl_ms) = (&self.scene.names.fresh, self.scene.plan.max_ttl_ms);
        let line = format!("LOCK.ACQUIRE {key} probe {ttl_ms} BLOCK 20000");
        wait_for("the first grant", || {
            if let Some(Reply::Int(_)) = caller.ask(port, &line) {
                return Some(());
            }
            port = stage.next(self, port);
            None
        });
        port
    }
}
