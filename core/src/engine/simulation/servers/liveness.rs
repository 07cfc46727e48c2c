//! Whoever waits is granted, once all servers and links have been quiet for long enough.

use super::dice::{Dice, Kind};
use super::guarded::{FAILOVERS, QUORUMS, RESTARTS};
use super::histories::take;
use super::*;

/// The waits of a guard, what remains of leases and of places that were kept: all of them are
/// shorter than this, in milliseconds.
const LONG_MS: u64 = 60_000;

/// How long the clients hold a lock, in milliseconds.
const HELD_MS: u64 = 200;

impl Cluster {
    /// Every server runs, and all follow one.
    fn recover(&mut self) {
        let primary = self.newest;
        for s in 0..self.servers.len() {
            self.step(Step::Resume(s));
            self.step(Step::Restart(s, Disk::Lacks(0), false));
            self.servers[s].stops_us = None;
        }
        self.step(Step::Promote(primary));
        for s in (0..self.servers.len()).filter(|s| *s != primary) {
            self.step(Step::Demote(s, primary));
            self.step(Step::Follow(s, primary));
        }
        // It learns of the links that were broken before.
        self.notice(primary);
    }

    /// Each client waits at the primary. Answers after how long all have had the lock.
    fn grant_all(&mut self) -> Option<u64> {
        let (began_us, primary) = (self.true_us, self.newest);
        for c in 0..self.clients.len() {
            self.step(Step::Lose(c, true));
            self.step(Step::Ask(c, primary, take(HELD_MS)));
        }
        for _ in 0..LONG_MS / 100 {
            self.step(Step::Tick(100));
            self.step(Step::Flow);
            (0..self.clients.len()).for_each(|c| self.step(Step::Hear(c)));
            let waits = |client: &Client| client.pending.is_some();
            if !self.clients.iter().any(waits) {
                return Some((self.true_us - began_us) / 1_000);
            }
        }
        None
    }
}

#[test]
fn whoever_waits_is_granted_once_all_is_quiet() {
    for (kind, seeds) in [(RESTARTS, 60), (FAILOVERS, 60), (QUORUMS, 60)] {
        let kind = Kind {
            must_be_safe: false,
            ..kind
        };
        let mut longest_ms = 0;
        for seed in 0..seeds {
            let mut dice = Dice::new(seed);
            let mut cluster = Cluster::new(dice.settings(kind));
            for _ in 0..400 {
                let step = dice.step(&cluster);
                cluster.step(step);
            }
            cluster.recover();
            let ms = cluster.grant_all();
            let ms = ms.unwrap_or_else(|| panic!("seed {seed} of {kind:?}: somebody waits"));
            longest_ms = longest_ms.max(ms);
        }
        println!("all were granted within {longest_ms} ms");
    }
}
