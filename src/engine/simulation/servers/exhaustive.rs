//! All short histories of guarded servers: two clients, one key, from the moments that matter.

use super::guard::{Rule, Scope, Settings as Guard};
use super::guarded::{FAILOVER, LONGEST_MS, QUORUM, RESTART};
use super::histories::{enumerate, small, take, take_as};
use super::lingering::bound;
use super::*;

/// How many steps each history has behind its beginning.
fn depth() -> u32 {
    let depth = std::env::var("GUARDED_DEPTH").ok();
    depth.map_or(4, |depth| depth.parse().expect("GUARDED_DEPTH is a number"))
}

const fn share(ttl: u64) -> What {
    take_as(Mode::Shared, ttl, None)
}

/// Plays all histories behind a beginning. Answers how many there are, and how many have a breach.
fn play_all(servers: usize, guard: Guard, begin: &[Step], steps: &[Step]) -> (u64, u64) {
    let settings = Settings {
        clocks: vec![Clocks::default(); servers],
        guard,
        must_be_safe: guard.without.is_none(),
        old_primaries_stop: guard.scope == Scope::Failover,
        ..small(false)
    };
    let mut cluster = Cluster::new(settings);
    begin.iter().for_each(|step| cluster.step(*step));
    assert_eq!(cluster.tally.breaches, 0);
    let mut breaches = 0;
    let mut found = |_: &[Step]| breaches += 1;
    let without = enumerate(&cluster, steps, depth(), &mut Vec::new(), &mut found);
    (without, breaches)
}

/// None of them has a breach, and some have one without each of the rules.
fn none_has_a_breach(servers: usize, guard: Guard, begin: &[Step], steps: &[Step], rules: &[Rule]) {
    let (count, _) = play_all(servers, guard, begin, steps);
    let all = (steps.len() as u64).pow(depth());
    assert_eq!(count, all);
    println!("{:?}: {count} histories, none with a breach", guard.scope);
    for rule in rules {
        let without = Guard {
            without: Some(*rule),
            ..guard
        };
        let (_, breaches) = play_all(servers, without, begin, steps);
        assert!(breaches > 0, "without {rule:?} there is no breach");
    }
}

#[test]
fn all_short_histories_of_a_guarded_restart_have_no_breach() {
    let begin = [
        Step::Tick(LONGEST_MS + 1_000),
        Step::Ask(0, 0, take(LONGEST_MS)),
    ];
    let steps = [
        Step::Ask(0, 0, share(LONGEST_MS)),
        Step::Ask(1, 0, share(LONGEST_MS)),
        Step::Ask(1, 0, take(LONGEST_MS)),
        Step::Ask(0, 0, What::Renew(0, LONGEST_MS)),
        Step::Ask(0, 0, What::Release(0)),
        Step::Ask(0, 0, What::Check(0)),
        Step::Tick(LONGEST_MS / 2),
        Step::Tick(LONGEST_MS + 1_001),
        Step::Crash(0),
        Step::Restart(0, Disk::Empty, true),
        Step::Restart(0, Disk::Lacks(1), true),
        Step::SetClock(0, LONGEST_MS as i64 + 1),
    ];
    none_has_a_breach(1, RESTART, &begin, &steps, &[Rule::Restart, Rule::Clock]);
}

#[test]
fn all_short_histories_of_a_guarded_failover_have_no_breach() {
    let begin = [
        Step::Tick(LONGEST_MS + 1_000),
        Step::Ask(0, 0, bound(LONGEST_MS, 0)),
        Step::Flow,
    ];
    let steps = [
        Step::Ask(0, 0, share(LONGEST_MS)),
        Step::Ask(1, 0, take(LONGEST_MS)),
        Step::Ask(1, 0, share(LONGEST_MS)),
        Step::Ask(0, 1, What::Renew(0, LONGEST_MS)),
        Step::Ask(0, 1, What::Check(0)),
        Step::Ask(0, 1, take(LONGEST_MS)),
        Step::Ask(1, 1, take(LONGEST_MS)),
        Step::Disconnect(0),
        Step::Tick(650),
        Step::Receive(1, 1),
        Step::Promote(1),
        Step::Demote(0, 1),
        Step::HandOver(2),
        Step::Crash(0),
    ];
    none_has_a_breach(3, FAILOVER, &begin, &steps, &[Rule::Promotion]);
}

/// From the moments around the waits for renewals and for grants, with an old primary that lives
/// on.
#[test]
fn all_short_histories_of_a_quorum_have_no_breach() {
    let steps = [
        Step::Ask(0, 0, What::Renew(0, 2_000)),
        Step::Ask(1, 0, take(2_000)),
        Step::Ask(0, 1, What::Renew(0, 2_000)),
        Step::Ask(0, 1, What::Check(0)),
        Step::Ask(0, 1, take(2_000)),
        Step::Ask(1, 1, take(2_000)),
        Step::Disconnect(0),
        Step::Tick(50),
        Step::Tick(900),
        Step::Flow,
        Step::Follow(2, 0),
        Step::Follow(2, 1),
        Step::HandOver(2),
    ];
    let flow = |ms: u64, n: u64| (0..n).flat_map(move |_| [Step::Tick(ms), Step::Flow]);
    for after_ms in [0, 100, 900, 1_000, 1_050, 2_050, 3_050, 3_100] {
        let mut begin: Vec<Step> = flow(250, 20).collect();
        begin.extend([Step::Ask(0, 0, bound(2_000, 0)), Step::Flow]);
        begin.extend([Step::CutUnseen(1), Step::CutUnseen(2)]);
        begin.extend([Step::Promote(1), Step::Follow(2, 1)]);
        begin.extend(flow(50, after_ms / 50));
        let rules = match after_ms {
            100 => &[Rule::Linger, Rule::Wait][..],
            _ => &[],
        };
        none_has_a_breach(3, QUORUM, &begin, &steps, rules);
    }
}
