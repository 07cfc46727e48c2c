//! The histories of requests for several keys.

use super::drivers::{keep, play_seeds, take, Dice};
use super::enumerate::{enumerate, is_fine};
use super::*;
use Limits::{Forever, NoWait, Notify, NotifyUntil, Until};
use Mode::{Exclusive, Shared};

const A: Place = at(0, 0);
const B: Place = at(0, 1);
const C: Place = at(0, 2);

fn all(keys: &[(Place, Mode)], token: u8, ttl: u64, limits: Limits, grace: u32) -> Op {
    let mut three = [None; 3];
    three
        .iter_mut()
        .zip(keys)
        .for_each(|(one, key)| *one = Some(*key));
    Op::AskAll(Keys(three), keep(keys[0].1, token, ttl, limits, grace))
}

/// Two keys and three tokens, in crossing orders and modes, beside requests for one key.
#[test]
fn all_histories_of_two_keys() {
    let ops = [
        all(&[(A, Exclusive), (B, Exclusive)], b'a', 9, Forever, 0),
        all(&[(B, Exclusive), (A, Exclusive)], b'b', 9, Forever, 0),
        all(&[(A, Shared), (B, Exclusive)], b'c', 9, Forever, 0),
        Op::Ask(A, take(Shared, b'b', 9, Forever)),
        Op::Ask(B, take(Exclusive, b'c', 9, Forever)),
        Op::Ask(A, Request::Release(b'a')),
        Op::Ask(B, Request::Release(b'a')),
        Op::Ask(A, Request::Release(b'b')),
        Op::Ask(B, Request::Release(b'c')),
        Op::Delete(A),
        Op::Timer,
    ];
    enumerate("two keys", &[], &ops, 6);
}

/// Grants that are lost, acknowledged at one of the keys, or heard of.
#[test]
fn all_histories_of_lost_grants_of_two_keys() {
    let first = [
        Op::Ask(A, take(Exclusive, b'x', 9, NoWait)),
        all(&[(A, Shared), (B, Exclusive)], b'a', 9, Forever, 2),
    ];
    let ops = [
        all(&[(A, Shared), (B, Exclusive)], b'a', 9, Forever, 0),
        all(&[(B, Shared), (A, Shared)], b'b', 9, Forever, 3),
        Op::Ask(A, take(Exclusive, b'a', 9, Forever)),
        Op::Ask(A, take(Shared, b'c', 9, Forever)),
        Op::Ask(A, Request::Release(b'x')),
        Op::Ask(B, Request::Renew(b'a', 9)),
        Op::Ask(B, Request::Release(b'a')),
        Op::Rename(A, C),
        Op::Lose(0),
        Op::Deliver(0),
        Op::Tick(1),
        Op::Timer,
    ];
    enumerate("lost grants of two keys", &first, &ops, 5);
}

/// Places that are kept, given up, and taken up again in other modes, by clients and channels.
#[test]
fn all_histories_of_kept_places_for_two_keys() {
    let ops = [
        Op::Ask(A, take(Exclusive, b'x', 3, NoWait)),
        Op::Ask(B, take(Shared, b'y', 3, Forever)),
        all(&[(A, Exclusive), (B, Exclusive)], b'a', 3, Until(1), 2),
        all(&[(B, Shared), (A, Shared)], b'a', 3, NoWait, 2),
        all(&[(B, Shared), (A, Shared)], b'a', 3, Notify, 0),
        all(&[(A, Shared), (B, Shared)], b'b', 3, NotifyUntil(1), 1),
        Op::Ask(A, Request::Release(b'x')),
        Op::Ask(B, Request::Release(b'a')),
        Op::Subscribe(false),
        Op::KillWaiter(0),
        Op::Tick(1),
        Op::Timer,
    ];
    enumerate("kept places for two keys", &[], &ops, 5);
}

/// Places that are kept, permits and several keys, which end by the end of a key, by a release that
/// takes effect later, and while writes are paused.
#[test]
fn all_histories_of_permits_beside_two_keys() {
    let two = Mode::of_limit(2).unwrap();
    let ops = [
        all(&[(A, Exclusive), (B, Shared)], b'a', 3, Until(1), 2),
        all(&[(B, Exclusive), (A, Shared)], b'b', 2, Forever, 0),
        Op::Ask(A, keep(two, b'c', 3, Forever, 2)),
        Op::Ask(A, take(two, b'd', 2, Forever)),
        Op::Ask(B, Request::ReleaseLater(b'a', 2)),
        Op::Ask(A, Request::Release(b'c')),
        Op::Ask(A, Request::Check(b'a')),
        Op::Ask(A, Request::Exec(b'd')),
        Op::Expire(A, 1),
        Op::Expire(B, 2),
        Op::PauseWrites(true),
        Op::PauseWrites(false),
        Op::KillWaiter(0),
        Op::Tick(1),
        Op::Timer,
    ];
    enumerate("permits beside two keys", &[], &ops, 5);
}

/// What happens to a whole server, or to one of the keys.
#[test]
fn all_histories_of_two_keys_on_servers() {
    let first = [
        Op::Ask(A, take(Shared, b'x', 9, Forever)),
        all(&[(A, Exclusive), (B, Exclusive)], b'a', 9, Forever, 3),
        all(&[(B, Exclusive), (C, Shared)], b'b', 9, Forever, 0),
    ];
    let ops = [
        all(&[(C, Exclusive), (A, Shared)], b'c', 9, Notify, 0),
        Op::Ask(B, take(Shared, b'x', 9, NoWait)),
        Op::Ask(A, Request::Release(b'x')),
        Op::KillWaiter(0),
        Op::Lose(0),
        Op::Overwrite(B),
        Op::Delete(B),
        Op::Flush(0),
        Op::SwapDbs(0, 1),
        Op::Rename(A, B),
        Op::Rename(B, C),
        Op::Demote(true),
        Op::Promote,
        Op::SlotGoes(1, false),
        Op::SlotComes(1),
        Op::Expire(A, 1),
        Op::Tick(2),
        Op::Timer,
    ];
    enumerate("two keys on servers", &first, &ops, 4);
}

impl Dice {
    /// A step of a history in which many requests are for several keys.
    fn op_of_several(&mut self) -> Op {
        self.has_several = true;
        if self.below(4) > 0 {
            return self.op();
        }
        let Op::Ask(_, request) = self.request() else {
            unreachable!()
        };
        let db = self.below(self.dbs);
        let mut names = [0, 1, 2];
        for n in 0..3 {
            names.swap(n, usize::from(self.below(3)));
        }
        let count = usize::from(1 + self.below(self.names));
        let mut keys = names.map(|name| {
            let mode = [Exclusive, Shared][usize::from(self.below(2))];
            (name < self.names).then_some((at(db, name), mode))
        });
        keys.sort_by_key(Option::is_none);
        keys.iter_mut().skip(count).for_each(|key| *key = None);
        Op::AskAll(Keys(keys), request)
    }
}

#[test]
fn long_random_histories_of_several_keys() {
    play_seeds(2_000, 1_000, Dice::op_of_several);
}

/// A request for all keys is not passed over for ever: with others coming and going at each key, it
/// gets its turn.
#[test]
fn a_request_for_several_keys_does_not_starve() {
    for seed in 0..100 {
        let mut world = World::new(true);
        let mut dice = Dice::new(seed);
        (dice.tokens, dice.dbs, dice.names, dice.longest) = (5, 1, 3, 8);
        for at in [A, B, C] {
            world.step(Op::Ask(at, take(Exclusive, b'x', 8, NoWait)));
        }
        let everything = [(A, Exclusive), (B, Exclusive), (C, Exclusive)];
        world.step(all(&everything, b'z', 8, Forever, 0));
        let mine = world.last_client;
        let mut steps = 0;
        while world.waiting(false).contains(&mine) {
            let op = match dice.below(4) {
                0 => Op::Tick(1),
                1 => Op::Timer,
                _ => dice.request(),
            };
            assert!(is_fine(|| world.step(op)), "seed {seed}: {op:?}");
            steps += 1;
            assert!(steps < 300, "seed {seed}: it starves");
        }
    }
}
