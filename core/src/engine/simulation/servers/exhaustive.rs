//! All short histories of guarded servers: two clients, one key, from the moments that matter.

use super::guard::{Rule, Scope, Settings as Guard};
use super::guarded::{FAILOVER, LONGEST_MS, OPEN_MS, QUORUM, RESTART};
use super::histories::{take, take_as};
use super::lingering::bound;
use super::worlds::World;
use super::*;

/// How many steps each history has behind its beginning.
fn depth() -> u32 {
    let depth = std::env::var("GUARDED_DEPTH").ok();
    depth.map_or(4, |depth| depth.parse().expect("GUARDED_DEPTH is a number"))
}

const fn share(ttl: u64) -> What {
    take_as(Mode::Shared, ttl, None)
}

/// The guard of the start is over, and somebody holds the lock.
const HELD: [Step; 2] = [Step::Tick(OPEN_MS), Step::Ask(0, 0, take(LONGEST_MS))];

fn none_has_a_breach(servers: usize, guard: Guard, begin: &[Step], steps: &[Step], rules: &[Rule]) {
    let world = World::new(guard, servers, begin, steps);
    world.none_has_a_breach("from a hold", depth(), rules);
}

#[test]
fn all_short_histories_of_a_guarded_restart_have_no_breach() {
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
    none_has_a_breach(1, RESTART, &HELD, &steps, &[Rule::Restart, Rule::Clock]);
}

/// A file is whole, and lacks what somebody has heard of all the same: a message was received
/// before the file was synced. A start after a start, too.
#[test]
fn all_short_histories_of_whole_files_have_no_breach() {
    let steps = [
        Step::Ask(0, 0, What::Renew(0, LONGEST_MS)),
        Step::Ask(1, 0, take(LONGEST_MS)),
        Step::Ask(1, 0, What::Release(0)),
        Step::Tick(LONGEST_MS / 2),
        Step::Tick(LONGEST_MS + 1_001),
        Step::Crash(0),
        Step::Restart(0, Disk::Lacks(0), true),
        Step::Restart(0, Disk::Lacks(1), true),
    ];
    let world = World::new(RESTART, 1, &HELD, &steps);
    world.none_has_a_breach("whole files", depth() + 1, &[Rule::Restart]);
}

#[test]
fn all_short_histories_of_a_guarded_failover_have_no_breach() {
    let begin = [
        Step::Tick(OPEN_MS),
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
    let rules = [Rule::Promotion, Rule::Holders, Rule::Linger];
    none_has_a_breach(3, FAILOVER, &begin, &steps, &rules);
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

fn flow(ms: u64, n: u64) -> impl Iterator<Item = Step> {
    (0..n).flat_map(move |_| [Step::Tick(ms), Step::Flow])
}

/// A replica whose link breaks goes on where it was, and its wait begins anew.
#[test]
fn all_short_histories_of_links_that_break_have_no_breach() {
    let mut begin: Vec<Step> = flow(250, 20).collect();
    begin.extend([Step::CutUnseen(1), Step::CutUnseen(2)]);
    begin.extend([Step::Promote(1), Step::Follow(2, 1)]);
    begin.extend(flow(250, 13));
    begin.extend([Step::Notice(0), Step::Ask(1, 1, take(2_000))]);
    let steps = [
        Step::Ask(0, 0, take(2_000)),
        Step::Ask(1, 1, take(2_000)),
        Step::Cut(2),
        Step::Follow(2, 0),
        Step::Follow(2, 1),
        Step::Flow,
        Step::Tick(500),
        Step::Tick(1_050),
    ];
    let world = World::new(QUORUM, 3, &begin, &steps);
    world.none_has_a_breach("links that break", depth() + 1, &[Rule::Attachment]);
}

const fn take_by(mode: Mode, limits: Limits, keep: u32) -> What {
    What::Take {
        name: 0,
        mode,
        ttl: LONGEST_MS,
        limits,
        keep,
        linger: None,
    }
}

/// Permits, places that are kept, and messages.
#[test]
fn all_short_histories_of_places_have_no_breach() {
    let permit = take_by(Mode::of_limit(2).unwrap(), Limits::NoWait, 0);
    let begin = [Step::Tick(OPEN_MS), Step::Ask(0, 0, permit)];
    let until = Limits::Until(300);
    let steps = [
        Step::Ask(1, 0, permit),
        Step::Ask(1, 0, take_by(Mode::Exclusive, Limits::Forever, 0)),
        Step::Ask(1, 1, take_by(Mode::Exclusive, Limits::Notify, 0)),
        Step::Ask(1, 1, take_by(Mode::Exclusive, until, LONGEST_MS as u32)),
        Step::Ask(0, 1, What::Release(0)),
        Step::Ask(0, 0, What::Renew(0, LONGEST_MS)),
        Step::Lose(1, true),
        Step::Tick(650),
        Step::Tick(LONGEST_MS + 1_501),
        Step::Flow,
        Step::Promote(1),
        Step::HandOver(1),
        Step::Crash(0),
    ];
    let world = World::new(FAILOVER, 2, &begin, &steps);
    let rules = [Rule::Promotion, Rule::Serving];
    world.none_has_a_breach("places", depth(), &rules);
}

/// Several keys of one request, and one of them by itself.
#[test]
fn all_short_histories_of_several_keys_have_no_breach() {
    const fn both(limits: Limits, keep: u32) -> What {
        let ttl = 2_000;
        What::TakeBoth { ttl, limits, keep }
    }
    let one = What::Take {
        name: 1,
        mode: Mode::Exclusive,
        ttl: 2_000,
        limits: Limits::NoWait,
        keep: 0,
        linger: None,
    };
    for guard in [FAILOVER, QUORUM] {
        let mut begin: Vec<Step> = flow(250, 20).collect();
        if guard.scope == Scope::Quorum {
            begin.extend([Step::CutUnseen(1), Step::CutUnseen(2)]);
            begin.extend([Step::Promote(1), Step::Follow(2, 1)]);
            begin.extend(flow(50, 2));
        }
        let steps = [
            Step::Ask(0, 0, What::Release(1)),
            Step::Ask(0, 0, both(Limits::NoWait, 0)),
            Step::Ask(1, 0, both(Limits::Forever, 0)),
            Step::Ask(1, 1, both(Limits::Notify, 1_000)),
            Step::Ask(0, 1, one),
            Step::Ask(0, 1, What::Renew(1, 2_000)),
            Step::Lose(1, true),
            Step::Tick(1_050),
            Step::Flow,
            Step::Promote(1),
            Step::Follow(2, 1),
            Step::HandOver(1),
            Step::Crash(0),
        ];
        let world = World::new(guard, 3, &begin, &steps);
        let rule = match guard.scope {
            Scope::Quorum => Rule::Wait,
            _ => Rule::Promotion,
        };
        world.none_has_a_breach("several keys", depth(), &[rule]);
    }
}
