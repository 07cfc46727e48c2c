//! Histories of LOCK.ONCE.

use super::drivers::{keep, take};
use super::enumerate::enumerate_in;
use super::*;
use crate::engine::host::Found;

const K: Place = at(0, 0);
const R: u8 = 10;
const S: u8 = 11;
use Limits::{Forever, NoWait, Notify, Until};
use Mode::{Exclusive, Shared};

impl Place {
    /// Another key of the same database.
    pub(super) const fn with(self, name: u8) -> Self {
        at(self.db, name)
    }
}

impl World {
    pub(super) fn play_once(&mut self, op: Op) {
        match op {
            Op::Once(at, request, name) => {
                self.asks(Some(name));
                self.command(at, request);
                self.asks(None);
            }
            Op::Result(at, name, result) => {
                self.set_result(at.with(name), result);
                self.command(at, Request::Release(b'?'));
            }
            Op::NoResult(at, name) => self.set_result(at.with(name), None),
            _ => unreachable!(),
        }
    }

    fn asks(&mut self, name: Option<u8>) {
        self.real.memory.asked.set(name);
        self.oracle.asked = name;
    }

    fn set_result(&mut self, at: Place, result: Option<NaiveResult>) {
        self.oracle.results.remove(&at);
        let found = match result {
            None => Found::Nothing,
            Some(NaiveResult::Value) => Found::Value([at.name].into(), None),
            Some(NaiveResult::Early) => Found::Value([at.name].into(), Some(0)),
            Some(NaiveResult::OtherType) => Found::OtherType,
            Some(NaiveResult::Elsewhere) => Found::Elsewhere,
        };
        self.oracle
            .results
            .extend(result.map(|result| (at, result)));
        self.real.memory.results.borrow_mut().insert(at, found);
    }
}

/// A world that comes to rest after each step: answers may take several turns of the timer.
fn at_rest() -> World {
    World {
        settles: true,
        ..World::new(true)
    }
}

const fn once(request: Request, name: u8) -> Op {
    Op::Once(K, request, name)
}

/// Makers that write, die, give up or are late, and those who wait behind them.
#[test]
fn all_histories_of_makers() {
    let ops = [
        once(take(Exclusive, b'a', 3, Forever), R),
        once(take(Exclusive, b'b', 3, Forever), R),
        once(take(Exclusive, b'c', 3, Until(2)), R),
        once(keep(Exclusive, b'd', 3, Notify, 2), R),
        Op::Ask(K, take(Exclusive, b'p', 3, Forever)),
        once(Request::Exec(b'a'), R),
        once(Request::Exec(b'b'), R),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Release(b'b')),
        Op::NoResult(K, R),
        Op::Delete(K),
        Op::Tick(4),
    ];
    enumerate_in(at_rest(), "makers", &[], &ops, 5);
}

/// Two results under one lock, at the places of one token, too.
#[test]
fn all_histories_of_two_results() {
    let first = [Op::Ask(K, take(Exclusive, b'm', 9, NoWait))];
    let ops = [
        once(take(Exclusive, b'a', 3, Until(2)), R),
        once(keep(Exclusive, b'a', 3, Until(1), 3), S),
        once(keep(Exclusive, b'a', 3, NoWait, 3), R),
        Op::Ask(K, keep(Exclusive, b'a', 3, Forever, 2)),
        once(take(Exclusive, b'b', 3, Notify), R),
        Op::Ask(K, take(Shared, b'c', 3, Forever)),
        once(Request::Exec(b'm'), R),
        once(Request::Exec(b'm'), S),
        Op::NoResult(K, R),
        Op::Ask(K, Request::Release(b'm')),
        Op::KillWaiter(0),
        Op::Tick(2),
    ];
    enumerate_in(at_rest(), "two results", &first, &ops, 5);
}

/// Results that are early, of another type, or at another node, and tokens that have a hold.
#[test]
fn all_histories_of_other_results() {
    let result = |result| Op::Result(K, R, Some(result));
    let ops = [
        once(take(Exclusive, b'a', 3, Forever), R),
        once(keep(Exclusive, b'b', 3, Forever, 3), R),
        once(keep(Exclusive, b'b', 3, NoWait, 3), R),
        Op::Ask(K, take(Shared, b'a', 3, Forever)),
        Op::Ask(K, take(Shared, b'c', 3, Forever)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Release(b'c')),
        result(NaiveResult::Early),
        result(NaiveResult::Value),
        result(NaiveResult::OtherType),
        result(NaiveResult::Elsewhere),
        Op::NoResult(K, R),
        Op::KillWaiter(0),
        Op::Tick(2),
    ];
    enumerate_in(at_rest(), "other results", &[], &ops, 5);
}
