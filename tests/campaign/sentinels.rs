//! A primary and two replicas of which three real sentinels promote one. What sentinels and replicas
//! send to a server goes through a link of its own, and what clients send does not.

use super::plan::{Fault, Plan};
use super::round::{Director, Stage};
use crate::harness::SentinelGroup;

pub struct Watched {
    group: SentinelGroup,
    /// The one that leads, as far as the driver knows.
    primary: usize,
}

impl Stage for Watched {
    fn start(plan: &Plan) -> Self {
        let options = plan.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Self {
            group: SentinelGroup::start(plan.kind, &options),
            primary: 0,
        }
    }

    fn primary(&self) -> u16 {
        self.group.servers[self.primary].port
    }

    fn fail_over(&mut self, director: &mut Director<'_, '_>) -> u16 {
        let old = self.primary();
        match director.scene.plan.fault {
            Fault::Planned => {
                director.note(old, "sentinel failover", "");
                self.group.sentinels.fail_over("");
            }
            fault => {
                director.note(old, "parted", "");
                self.group.links[0].stall();
                director.begin_to_lose();
                if fault == Fault::Behind {
                    director.pause(100..400);
                    director.note(old, "kill", "");
                    self.group.servers[0].kill();
                }
            }
        }
        self.wait_for_another(director);
        if director.scene.plan.fault == Fault::Planned {
            self.group
                .sentinels
                .wait_for("the old primary to follow", || {
                    (!self.group.leads(0)).then_some(())
                });
            director.note(old, "demoted", "");
        }
        self.primary()
    }

    /// Sentinels that disagree may promote one more, and demote the first.
    fn next(&mut self, director: &Director<'_, '_>, _: u16) -> u16 {
        if !self.group.leads(self.primary) {
            self.wait_for_another(director);
        }
        self.primary()
    }
}

impl Watched {
    fn wait_for_another(&mut self, director: &Director<'_, '_>) {
        let others = |n: &usize| *n != 0 && *n != self.primary;
        let all = 0..self.group.servers.len();
        self.primary = self.group.sentinels.wait_for("a promotion", || {
            let mut others = all.clone().filter(others);
            others.find(|server| self.group.leads(*server))
        });
        director.is_promoted(self.primary());
    }
}
