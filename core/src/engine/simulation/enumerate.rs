//! All short histories of an alphabet.

use std::panic::{catch_unwind, AssertUnwindSafe};

use super::*;
use crate::lock::effort;

/// Plays all histories of so many steps of these, each after the steps that come `first`.
pub(super) fn enumerate(name: &str, first: &[Op], ops: &[Op], depth: u32) {
    enumerate_in(World::new(true), name, first, ops, depth);
}

/// The same in a world of its own.
pub(super) fn enumerate_in(mut world: World, name: &str, first: &[Op], ops: &[Op], depth: u32) {
    first.iter().for_each(|op| world.step(*op));
    enumerate_from(&world, name, first, ops, depth);
}

/// The same, in a world in which the first steps have been played.
pub(super) fn enumerate_from(world: &World, name: &str, first: &[Op], ops: &[Op], depth: u32) {
    // It ends the histories of which longer ones begin with a step that does nothing.
    let has_timer = ops.iter().any(|op| matches!(op, Op::Timer));
    assert!(world.settles || has_timer, "an alphabet without the timer");
    let depth = effort::depth(depth);
    let all = (ops.len() as u64).pow(depth);
    let count = all_histories(world, ops, depth, &mut first.to_vec());
    println!(
        "{name}: {count} of {all} histories of {depth} steps: in the others a step does nothing"
    );
}

/// Plays all histories of so many steps, but those in which a step does nothing: a shorter one is
/// the same. The timer runs after the last step of each.
fn all_histories(world: &World, ops: &[Op], depth: u32, history: &mut Vec<Op>) -> u64 {
    let mut count = 0;
    let ends = depth == 1 && !world.settles;
    for op in ops.iter().filter(|op| world.changes_by(**op)) {
        let mut next = world.clone();
        history.push(*op);
        if !is_fine(|| next.step(*op)) || (ends && !is_fine(|| next.step(Op::Timer))) {
            let mut begin = World {
                settles: world.settles,
                ..World::new(true)
            };
            begin.set_linger(world.oracle.linger_ms);
            fail(&begin, history);
        }
        count += match depth {
            1 => 1,
            _ => all_histories(&next, ops, depth - 1, history),
        };
        history.pop();
    }
    count
}

impl World {
    /// Whether a step may do something that no other one does: what [`World::play`] passes over
    /// does not, and the second of one client is the first.
    fn changes_by(&self, op: Op) -> bool {
        let is_there = |at: Place| self.real.values().contains_key(&at);
        let is_another = |n: usize, of: usize| match n {
            LAST => of > 1,
            _ => n < of,
        };
        match op {
            Op::Ask(at, _) | Op::Once(at, ..) | Op::Result(at, ..) => {
                self.lets_in([at].into_iter())
            }
            Op::AskAll(keys, _) => self.lets_in(keys.iter().map(|(at, _)| at)),
            Op::KillWaiter(n) => is_another(n, self.waiting(true).len()),
            Op::KillAt(at, n) => is_another(n, self.oracle.listeners(at).len()),
            Op::Lose(n) | Op::Deliver(n) => {
                is_another(n, self.real.memory.in_flight.borrow().len())
            }
            Op::Disconnect(n) => is_another(n, self.bound_clients().len()),
            Op::NoResult(at, name) => self.oracle.results.contains_key(&at.with(name)),
            Op::Promote => !self.scene.is_primary,
            Op::RefuseWrites(refuses) => refuses != self.scene.refuses_writes,
            Op::PauseWrites(pauses) => pauses != self.scene.pauses_writes,
            Op::Subscribe(subscribes) => subscribes != self.scene.has_subscribers,
            Op::Delete(at)
            | Op::Persist(at)
            | Op::Expire(at, _)
            | Op::Rename(at, _)
            | Op::Copy(at, ..) => self.scene.serves(at) && is_there(at),
            _ => true,
        }
    }
}

pub(super) fn is_fine(play: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(play)).is_ok()
}

/// Fails with a history that cannot do without any of its steps.
pub(super) fn fail(begin: &World, history: &[Op]) -> ! {
    let play = |history: &[Op]| {
        let mut world = begin.clone();
        let steps = history.iter().chain(&[Op::Timer]);
        steps.for_each(|op| world.step(*op));
    };
    let mut shortest = history.to_vec();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut at = shortest.len();
    let mut has_shrunk = false;
    while at > 0 {
        at -= 1;
        let mut shorter = shortest.clone();
        shorter.remove(at);
        if !is_fine(|| play(&shorter)) {
            (shortest, has_shrunk) = (shorter, true);
        }
        if at == 0 && std::mem::take(&mut has_shrunk) {
            at = shortest.len();
        }
    }
    std::panic::set_hook(hook);
    let says_who_listens = begin.real.memory.says_who_listens;
    println!(
        "{} steps, says_who_listens {says_who_listens}: {shortest:?}",
        shortest.len()
    );
    play(&shortest);
    panic!("it fails with another history before it");
}
