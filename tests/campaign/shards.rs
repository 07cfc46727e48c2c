//! A real cluster: three primaries with a replica each. Everything happens to the first shard, and
//! the slot of most locks is the one that moves.

use std::time::{Duration, Instant};

use crate::harness::{wait_for, Cluster, Reply, SHARDS};

use super::clients::Names;
use super::plan::{Fault, Plan};
use super::round::{Director, Stage};

const OLD: usize = 0;
const REPLICA: usize = OLD + SHARDS;
/// Where slots go.
const OTHER: usize = 1;

impl Stage for Cluster {
    fn start(plan: &Plan) -> Self {
        let options = plan.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let cluster = Self::start_with(plan.kind, &options);
        for node in 0..SHARDS {
            wait_for("the guard to open", || {
                let guard = cluster.client(node).info("lock_guard");
                ["open", "off"].contains(&&guard[..]).then_some(())
            });
        }
        cluster
    }

    fn primary(&self) -> u16 {
        self.nodes[OLD].port
    }

    fn names(&self) -> Names {
        let [here, elsewhere] = [OLD, 2].map(|shard| self.keys_of(shard, 1).remove(0));
        let of = |tag: &str, name: &str| format!("{{{tag}}}{name}");
        let mut names = Names::new(|name| of(&here, name));
        // Their shard has no part in it.
        names.near.truncate(3);
        names
            .near
            .extend(["k3", "k4"].map(|name| of(&elsewhere, name)));
        names
    }

    fn fail_over(&mut self, director: &mut Director<'_, '_>) -> u16 {
        let slot = self.slot(&director.scene.names.fresh);
        let (old, new) = (self.nodes[OLD].port, self.nodes[REPLICA].port);
        let fault = director.scene.plan.fault;
        match fault {
            Fault::Planned => {
                director.note(old, "failover", "");
                self.fail_over_to_replica("CLUSTER FAILOVER");
            }
            Fault::Moved => {
                director.note(old, "moves", &slot.to_string());
                self.begin_to_move(slot, OLD, OTHER);
                director.pause(0..200);
                self.move_keys(slot, OLD, OTHER);
                director.pause(0..200);
                // Those that came meanwhile.
                self.move_keys(slot, OLD, OTHER);
                self.end_of_move(slot, OLD, OTHER);
            }
            Fault::MovedAtOnce => {
                director.note(old, "moves", &slot.to_string());
                self.begin_to_migrate([slot, slot], OLD, OTHER);
                self.end_of_migration(OLD, OTHER);
            }
            Fault::Seized => {
                director.begin_to_lose();
                director.pause(100..400);
                let mut c = self.client(OTHER);
                director.note(self.nodes[OTHER].port, "promoting", &slot.to_string());
                c.text(&format!("CLUSTER SETSLOT {slot} NODE {}", self.id(OTHER)));
                c.text("CLUSTER BUMPEPOCH");
                // The old owner hears of it at once, and not by and by.
                c.text(&format!("CLUSTER MEET 127.0.0.1 {old}"));
            }
            _ => {
                self.cut_off_replica(director);
                director.pause(100..400);
                if fault == Fault::Behind {
                    director.note(old, "kill", "");
                    self.nodes[OLD].kill();
                }
                director.note(new, "promoting", "");
                self.fail_over_to_replica("CLUSTER FAILOVER TAKEOVER");
            }
        }
        let next = match fault {
            Fault::Moved | Fault::MovedAtOnce | Fault::Seized => self.nodes[OTHER].port,
            _ => new,
        };
        director.is_promoted(next);
        if matches!(fault, Fault::Seized | Fault::LivesOn) {
            self.wait_until_deposed(director);
        }
        next
    }
}

impl Cluster {
    fn fail_over_to_replica(&self, line: &str) {
        let mut asked = Instant::now();
        self.client(REPLICA).text(line);
        wait_for("the replica to lead", || {
            // A node gives up after five seconds, because a machine may stall for that long.
            if asked.elapsed() > Duration::from_secs(6) {
                self.client(REPLICA).call(line);
                asked = Instant::now();
            }
            self.is_primary(REPLICA).then_some(())
        });
    }

    /// From then on the old owner of the slot grants nothing.
    fn wait_until_deposed(&self, director: &Director<'_, '_>) {
        let mut c = self.client(OLD);
        let line = format!("LOCK.CHECK {} nobody", director.scene.names.fresh);
        wait_for("the old owner to hear of it", || {
            let refused = matches!(c.call(&line), Reply::Error(e) if e.starts_with("MOVED"));
            refused.then_some(())
        });
        director.note(self.nodes[OLD].port, "demoted", "");
    }

    /// It cannot follow its primary, because it does not have the password that is asked for.
    fn cut_off_replica(&self, director: &Director<'_, '_>) {
        director.note(self.nodes[REPLICA].port, "unlinked", "");
        let mut c = self.client(REPLICA);
        for setting in ["masteruser nobody", "masterauth wrong"] {
            c.text(&format!("CONFIG SET {setting}"));
        }
        self.client(OLD).call("CLIENT KILL TYPE replica");
        director.begin_to_lose();
    }
}
