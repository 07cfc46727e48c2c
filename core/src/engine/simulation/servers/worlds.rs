//! Small worlds of guarded servers: a beginning, and the steps that may follow it. All short
//! histories of them are played ([`exhaustive`](super::exhaustive)), and long random ones
//! ([`wandering`](super::wandering)).

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::guard::{Rule, Scope, Settings as Guard};
use super::histories::{enumerate, print_breach, small};
use super::*;

#[derive(Clone)]
pub(super) struct World {
    pub(super) guard: Guard,
    pub(super) clocks: Vec<Clocks>,
    pub(super) begin: Vec<Step>,
    /// What may follow. A step that is there twice is twice as likely in random histories.
    pub(super) steps: Vec<Step>,
}

impl World {
    pub(super) fn new(guard: Guard, servers: usize, begin: &[Step], steps: &[Step]) -> Self {
        Self {
            guard,
            clocks: vec![Clocks::default(); servers],
            begin: begin.to_vec(),
            steps: steps.to_vec(),
        }
    }

    fn without(&self, rule: Option<Rule>) -> (Settings, Cluster) {
        let guard = Guard {
            without: rule,
            ..self.guard
        };
        let settings = Settings {
            clocks: self.clocks.clone(),
            guard,
            must_be_safe: rule.is_none(),
            old_primaries_stop: guard.scope == Scope::Failover,
            ..small(false)
        };
        let mut cluster = Cluster::new(settings.clone());
        self.begin.iter().for_each(|step| cluster.step(*step));
        assert_eq!(cluster.tally.breaches, 0);
        (settings, cluster)
    }

    /// Plays all histories of so many steps. Answers how many there are, and how many have a
    /// breach.
    fn play_all(&self, depth: u32, rule: Option<Rule>) -> (u64, u64) {
        let (_, cluster) = self.without(rule);
        let mut breaches = 0;
        let mut found = |_: &[Step]| breaches += 1;
        let without = enumerate(&cluster, &self.steps, depth, &mut Vec::new(), &mut found);
        (without, breaches)
    }

    /// None of all short histories has a breach, and some have one without each of the rules.
    pub(super) fn none_has_a_breach(&self, name: &str, depth: u32, rules: &[Rule]) {
        let (count, _) = self.play_all(depth, None);
        let scope = self.guard.scope;
        println!("{name}, {scope:?}: {count} histories of {depth} steps, none with a breach");
        for rule in rules {
            let (_, breaches) = self.play_all(depth, Some(*rule));
            println!("  without {rule:?} {breaches} have one");
            assert!(breaches > 0, "without {rule:?} there is no breach");
        }
    }

    /// Plays a random history, and answers it up to its first breach, if it has one.
    fn wander(&self, cluster: &Cluster, steps: usize, seed: u64) -> Option<Vec<Step>> {
        let (mut cluster, mut history) = (cluster.clone(), self.begin.clone());
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..steps {
            let step = self.steps[rng.random_range(0..self.steps.len())];
            history.push(step);
            cluster.step(step);
            if cluster.tally.breaches > 0 {
                return Some(history);
            }
        }
        None
    }

    /// No random history has a breach, and one of so many has one without each of the rules.
    pub(super) fn wanders_without_a_breach(
        &self,
        (seeds, steps): (u64, usize),
        rules: &[(Rule, u64)],
    ) {
        let (_, cluster) = self.without(None);
        for seed in 0..seeds {
            self.wander(&cluster, steps, seed);
        }
        println!("{seeds} random histories of {steps} steps, none with a breach");
        for (rule, seeds) in rules {
            let (settings, cluster) = self.without(Some(*rule));
            let found = |seed| {
                let history = self.wander(&cluster, steps, seed)?;
                Some((seed, settings.clone(), history))
            };
            println!("without {rule:?}:");
            print_breach((0..*seeds).find_map(found));
        }
    }
}
