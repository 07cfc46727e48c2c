//! The histories of holds that are bound to connections (LINGER). Each request has a connection of
//! its own, and all of them say LINGER.

use super::drivers::{keep, take};
use super::enumerate::enumerate_in;
use super::*;
use Limits::{Forever, NoWait, Notify};
use Mode::{Exclusive, Shared};

const K: Place = at(0, 0);
const J: Place = at(0, 1);

impl World {
    /// Has holds stay for so long when their connections are lost, in milliseconds.
    pub(super) fn set_linger(&mut self, ms: u64) {
        self.real.memory.linger_ms.set(Some(ms));
        self.oracle.linger_ms = ms;
    }

    /// The clients to which holds are bound.
    pub(super) fn bound_clients(&self) -> Vec<Client> {
        let now = self.scene.now_ms;
        let places = self.scene.places();
        let mut clients: Vec<_> = places
            .flat_map(|at| self.oracle.bound_clients(at, now))
            .collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }
}

fn enumerate(name: &str, linger_ms: u64, first: &[Op], ops: &[Op], depth: u32) {
    let mut world = World::new(true);
    world.set_linger(linger_ms);
    enumerate_in(world, name, first, ops, depth);
}

fn both(token: u8, limits: Limits, grace: u32) -> Op {
    let keys = Keys([Some((K, Shared)), Some((J, Exclusive)), None]);
    Op::AskAll(keys, keep(Shared, token, 5, limits, grace))
}

/// Grants by a reply, by a channel and of two keys, which are heard of or not, and a connection
/// that is lost before, in between or after.
#[test]
fn all_histories_of_lost_connections() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 5, Forever)),
        Op::Ask(K, keep(Shared, b'b', 4, Notify, 2)),
        Op::Ask(K, keep(Exclusive, b'b', 5, Forever, 2)),
        both(b'c', Forever, 2),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Renew(b'b', 5)),
        Op::Disconnect(0),
        Op::Disconnect(LAST),
        Op::Lose(0),
        Op::Deliver(0),
        Op::Tick(1),
        Op::Timer,
    ];
    for linger_ms in [0, 1] {
        enumerate("lost connections", linger_ms, &[], &ops, 5);
    }
}

/// What has become of the lock since, and of the server.
#[test]
fn all_histories_of_locks_that_leave_lost_connections() {
    let first = [
        Op::Ask(K, take(Shared, b'a', 9, NoWait)),
        Op::Ask(J, take(Exclusive, b'b', 9, NoWait)),
        Op::Ask(J, take(Exclusive, b'a', 9, Forever)),
    ];
    let ops = [
        Op::Ask(K, keep(Exclusive, b'a', 9, Forever, 3)),
        both(b'c', Notify, 0),
        Op::Ask(J, Request::ReleaseLater(b'b', 2)),
        Op::Ask(J, Request::Check(b'b')),
        Op::Ask(K, Request::Exec(b'a')),
        Op::Disconnect(0),
        Op::Disconnect(LAST),
        Op::Rename(J, K),
        Op::Rename(K, J),
        Op::SwapDbs(0, 1),
        Op::Expire(J, 1),
        Op::PauseWrites(true),
        Op::PauseWrites(false),
        Op::SlotGoes(1, false),
        Op::SlotComes(1),
        Op::Demote(false),
        Op::Promote,
        Op::Tick(2),
        Op::Timer,
    ];
    for linger_ms in [0, 2] {
        enumerate(
            "locks that leave lost connections",
            linger_ms,
            &first,
            &ops,
            4,
        );
    }
}
