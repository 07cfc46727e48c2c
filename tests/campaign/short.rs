//! The short form of the suite, which is a test of every change: a round of each kind on the oldest and
//! on the newest server. Of rounds with several servers only that counts which no slow machine can
//! bring about: beliefs and fences.

use std::path::Path;
use std::sync::Mutex;
use std::thread;

use super::plan::{Choice, Fault, Plan, Topology};
use super::run;
use crate::harness::{now_us, setting};

/// How many rounds are played at one time.
const AT_ONCE: usize = 3;

#[test]
fn one_server_keeps_every_rule_on_redis_7_0() {
    plays("redis-7.0", "single", "");
}

#[test]
fn one_server_keeps_every_rule_on_valkey_9() {
    plays("valkey-9", "single", "");
}

#[test]
fn groups_and_clusters_show_no_overlap_on_redis_7_0() {
    plays("redis-7.0", "group,cluster", "behind,planned,moved");
}

#[test]
fn groups_and_clusters_show_no_overlap_on_valkey_9() {
    // Without moves: under a guard Valkey 9 has failed atomic ones at times (docs/OPERATIONS.md).
    plays("valkey-9", "group,cluster", "behind,planned");
}

fn plays(servers: &str, topologies: &str, faults: &str) {
    let choice = Choice::of(servers, topologies, "restart,failover", faults);
    let seed = setting("CAMPAIGN_SEED").unwrap_or_else(now_us);
    let plans = (0..choice.len()).map(|number| choice.plan(number, seed + number, true));
    // A busy machine loses the votes of an election.
    let is_elected =
        |plan: &Plan| (plan.topology, plan.fault) == (Topology::Cluster, Fault::Planned);
    let plans = plans.filter(|plan| !is_elected(plan));
    let plans = Mutex::new(plans.collect::<Vec<Plan>>());
    let refused = Mutex::new(String::new());
    let next = || plans.lock().unwrap().pop();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(plan) = next() {
                    let text = play(Plan {
                        adapter: None,
                        ..plan
                    });
                    *refused.lock().unwrap() += &text;
                }
            });
        }
    });
    let refused = refused.into_inner().unwrap();
    assert!(refused.is_empty(), "{refused}");
}

/// What was refused, if it counts.
fn play(plan: Plan) -> String {
    let row = run(plan, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let counts = match &row.verdict {
        None => true,
        Some(_) if row.plan.topology == Topology::Single => !row.findings.is_empty(),
        Some(verdict) if verdict.is_void => false,
        Some(verdict) => !verdict.overlaps.is_empty() || !verdict.fences.is_empty(),
    };
    if counts {
        return row.told();
    }
    String::new()
}
