//! The histories that are played.

// Long because: it is a list of histories.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::enumerate::{enumerate, fail, is_fine};
use super::*;
use crate::lock::effort;

pub(super) fn take(mode: Mode, token: u8, ttl: u64, limits: Limits) -> Request {
    keep(mode, token, ttl, limits, 0)
}

pub(super) fn keep(mode: Mode, token: u8, ttl: u64, limits: Limits, keep: u32) -> Request {
    Request::Take {
        mode,
        token,
        ttl,
        limits,
        keep,
    }
}

const K: Place = at(0, 0);
const J: Place = at(0, 1);
const ELSEWHERE: Place = at(1, 0);
use Limits::{Forever, NoWait, Notify, NotifyUntil, Until};
use Mode::{Exclusive, Shared};

/// Grants that are lost, acknowledged or heard of, while the lock goes elsewhere.
#[test]
fn all_histories_of_lost_replies() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 9, Forever)),
        Op::Ask(K, take(Shared, b'b', 9, Forever)),
        Op::Ask(K, take(Exclusive, b'b', 9, Forever)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(J, Request::Renew(b'b', 9)),
        Op::Delete(K),
        Op::Rename(K, J),
        Op::SwapDbs(0, 1),
        Op::Lose(0),
        Op::Deliver(0),
        Op::Timer,
    ];
    enumerate("lost replies", &[], &ops, 6);
}

/// Two readers that have not heard of their grants, and a lock that goes to a key for which one of
/// them waits, too.
#[test]
fn all_histories_of_lost_replies_on_the_move() {
    let first = [
        Op::Ask(K, take(Exclusive, b'a', 9, Forever)),
        Op::Ask(K, take(Shared, b'b', 9, Forever)),
        Op::Ask(K, take(Shared, b'c', 9, Forever)),
        Op::Ask(J, take(Exclusive, b'b', 9, Forever)),
        Op::Ask(J, take(Exclusive, b'c', 9, Forever)),
        Op::Ask(J, take(Shared, b'b', 9, Forever)),
        Op::Ask(K, Request::Release(b'a')),
    ];
    let ops = [
        Op::Ask(K, take(Shared, b'd', 9, NoWait)),
        Op::Ask(K, Request::Release(b'c')),
        Op::Ask(K, Request::Renew(b'b', 8)),
        Op::Ask(J, Request::Renew(b'b', 8)),
        Op::Rename(K, J),
        Op::Rename(J, K),
        Op::Lose(0),
        Op::Lose(1),
        Op::Deliver(0),
        Op::Deliver(1),
        Op::Timer,
    ];
    enumerate("lost replies on the move", &first, &ops, 6);
}

/// Three requests of a token beside a reader: it is a reader itself before it is alone.
#[test]
fn all_histories_of_lost_replies_of_one_token() {
    let first = [
        Op::Ask(K, take(Exclusive, b'w', 9, Forever)),
        Op::Ask(K, take(Shared, b'r', 9, Forever)),
        Op::Ask(K, take(Shared, b't', 9, Forever)),
        Op::Ask(K, take(Shared, b't', 9, Forever)),
        Op::Ask(K, take(Exclusive, b't', 9, Forever)),
        Op::Ask(K, take(Exclusive, b'z', 9, Forever)),
    ];
    let ops = [
        Op::Ask(K, Request::Release(b'w')),
        Op::Ask(K, Request::Release(b'r')),
        Op::Ask(K, Request::Renew(b't', 8)),
        Op::Rename(K, J),
        Op::Lose(1),
        Op::Lose(2),
        Op::Deliver(0),
        Op::Deliver(1),
        Op::Timer,
    ];
    enumerate("lost replies of one token", &first, &ops, 6);
}

/// New holds that nobody hears of end, or stay for the grace of KEEP. Meanwhile the server takes no
/// writes, or its slot is away.
#[test]
fn all_histories_of_unheard_grants() {
    let first = [Op::Ask(K, take(Exclusive, b'a', 9, NoWait))];
    let ops = [
        Op::Ask(K, keep(Exclusive, b'b', 9, Forever, 3)),
        Op::Ask(K, take(Shared, b'b', 9, Forever)),
        Op::Ask(K, take(Exclusive, b'c', 9, Forever)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Renew(b'b', 9)),
        Op::Ask(K, Request::Check(b'b')),
        Op::Lose(0),
        Op::Lose(1),
        Op::Deliver(0),
        Op::PauseWrites(true),
        Op::PauseWrites(false),
        Op::SlotGoes(0, false),
        Op::SlotComes(0),
        Op::Tick(2),
        Op::Timer,
    ];
    enumerate("unheard grants", &first, &ops, 5);
}

/// A hold that stands under two keys, by DUMP and RESTORE.
#[test]
fn all_histories_of_copies() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 9, Forever)),
        Op::Ask(K, take(Shared, b'b', 9, Forever)),
        Op::Ask(J, take(Exclusive, b'b', 9, Forever)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(J, Request::Release(b'a')),
        Op::Ask(J, Request::Renew(b'b', 9)),
        Op::Delete(K),
        Op::Copy(K, J, true),
        Op::Copy(K, J, false),
        Op::Lose(0),
        Op::Deliver(0),
        Op::Timer,
    ];
    enumerate("copies", &[], &ops, 6);
}

/// Deadlines and timeouts, clients that are killed, and clocks.
#[test]
fn all_histories_of_time() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 1, Until(2))),
        Op::Ask(K, take(Shared, b'b', 2, Until(1))),
        Op::Ask(K, take(Exclusive, b'c', 3, Forever)),
        Op::Ask(K, take(Shared, b'c', 3, Forever)),
        Op::Expire(K, 1),
        Op::Persist(K),
        Op::KillWaiter(0),
        Op::KillWaiter(1),
        Op::Tick(1),
        Op::SetClock(-2),
        Op::SetClock(2),
        Op::Timer,
    ];
    enumerate("time", &[], &ops, 6);
}

/// What happens to a whole server.
#[test]
fn all_histories_of_servers() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 2, Forever)),
        Op::Ask(K, take(Shared, b'b', 3, Until(1))),
        Op::Ask(ELSEWHERE, take(Exclusive, b'b', 2, Forever)),
        Op::Overwrite(K),
        Op::Flush(0),
        Op::SwapDbs(0, 1),
        Op::Demote(false),
        Op::Demote(true),
        Op::Promote,
        Op::SlotGoes(0, false),
        Op::SlotComes(0),
        Op::Lose(0),
        Op::Tick(2),
        Op::Timer,
    ];
    enumerate("servers", &[], &ops, 6);
}

pub(super) fn counted(n: u32) -> Mode {
    Mode::of_limit(n).unwrap()
}

/// Permits, whose grants are lost, kept and converted.
#[test]
fn all_histories_of_permits() {
    let two = counted(2);
    let ops = [
        Op::Ask(K, take(two, b'a', 3, Forever)),
        Op::Ask(K, keep(two, b'b', 3, Forever, 2)),
        Op::Ask(K, keep(two, b'c', 3, Until(1), 2)),
        Op::Ask(K, take(counted(3), b'c', 3, Notify)),
        Op::Ask(K, take(Shared, b'a', 3, NoWait)),
        Op::Ask(K, take(Exclusive, b'd', 2, Forever)),
        Op::Ask(K, Request::Release(b'b')),
        Op::KillWaiter(0),
        Op::Lose(0),
        Op::Tick(1),
        Op::Timer,
    ];
    enumerate("permits", &[], &ops, 6);
}

/// Places that are kept over timeouts, kills and lost replies, and taken up again.
#[test]
fn all_histories_of_kept_places() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 3, Forever)),
        Op::Ask(K, keep(Exclusive, b'b', 3, Until(1), 2)),
        Op::Ask(K, keep(Shared, b'b', 3, NoWait, 2)),
        Op::Ask(K, keep(Shared, b'c', 3, Forever, 2)),
        Op::Ask(K, keep(Exclusive, b'a', 3, NoWait, 1)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Release(b'b')),
        Op::KillWaiter(0),
        Op::Lose(0),
        Op::Tick(1),
        Op::Timer,
    ];
    enumerate("kept places", &[], &ops, 6);
}

/// Times that are over when a command comes before the timer, and a server that takes no writes for
/// a while.
#[test]
fn all_histories_of_late_timers() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 9, NoWait)),
        Op::Ask(K, take(Exclusive, b'b', 9, Until(1))),
        Op::Ask(K, keep(Shared, b'c', 9, NoWait, 2)),
        Op::Ask(K, keep(Shared, b'd', 9, Until(2), 1)),
        Op::Ask(K, take(Shared, b'e', 9, Forever)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Cancel(Some(b'd'))),
        Op::RefuseWrites(true),
        Op::RefuseWrites(false),
        Op::PauseWrites(true),
        Op::PauseWrites(false),
        Op::Tick(1),
        Op::Tick(2),
        Op::Timer,
    ];
    enumerate("late timers", &[], &ops, 6);
}

/// Channels beside clients, heard and unheard.
#[test]
fn all_histories_of_channels() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 3, Forever)),
        Op::Ask(K, keep(Exclusive, b'b', 3, NotifyUntil(1), 2)),
        Op::Ask(K, take(Shared, b'b', 3, Notify)),
        Op::Ask(K, take(Exclusive, b'b', 3, Forever)),
        Op::Ask(K, take(Shared, b'c', 3, Notify)),
        Op::Ask(K, Request::Release(b'a')),
        Op::Ask(K, Request::Release(b'b')),
        Op::Subscribe(false),
        Op::Subscribe(true),
        Op::KillWaiter(0),
        Op::Lose(0),
        Op::Tick(1),
        Op::Timer,
    ];
    enumerate("channels", &[], &ops, 6);
}

/// Waits that are cancelled, all or those of one token.
#[test]
fn all_histories_of_cancelled_waits() {
    let ops = [
        Op::Ask(K, take(Exclusive, b'a', 3, Forever)),
        Op::Ask(K, keep(Exclusive, b'b', 3, Until(1), 2)),
        Op::Ask(K, take(Shared, b'b', 3, Notify)),
        Op::Ask(K, keep(Shared, b'c', 3, NoWait, 2)),
        Op::Ask(K, take(Shared, b'd', 3, Notify)),
        Op::Ask(K, Request::Cancel(None)),
        Op::Ask(K, Request::Cancel(Some(b'b'))),
        Op::Ask(K, Request::Release(b'a')),
        Op::Subscribe(false),
        Op::KillWaiter(0),
        Op::Lose(0),
        Op::Tick(2),
        Op::Timer,
    ];
    enumerate("cancelled waits", &[], &ops, 5);
}

/// What happens to places of nobody's when something happens to a whole server.
#[test]
fn all_histories_of_kept_places_on_servers() {
    let first = [
        Op::Ask(K, take(Shared, b'a', 9, Forever)),
        Op::Ask(K, keep(Exclusive, b'b', 9, Forever, 3)),
        Op::Ask(K, keep(Shared, b'c', 9, Forever, 3)),
    ];
    let ops = [
        Op::Ask(K, keep(Exclusive, b'a', 9, NoWait, 3)),
        Op::Ask(K, take(Shared, b'c', 9, NoWait)),
        Op::Ask(J, take(Shared, b'c', 9, NoWait)),
        Op::KillWaiter(0),
        Op::Lose(0),
        Op::Overwrite(K),
        Op::Flush(0),
        Op::SwapDbs(0, 1),
        Op::Rename(K, J),
        Op::Rename(J, K),
        Op::Demote(true),
        Op::Promote,
        Op::SlotGoes(0, false),
        Op::SlotComes(0),
        Op::SetClock(-5),
        Op::Tick(2),
        Op::Timer,
    ];
    enumerate("kept places on servers", &first, &ops, 5);
}

pub(super) struct Dice {
    rng: StdRng,
    pub(super) tokens: u8,
    /// Whether requests have limits.
    has_limits: bool,
    pub(super) longest: u64,
    pub(super) dbs: u8,
    pub(super) names: u8,
    /// How seldom a reply gets to its client.
    slowness: u8,
    /// Whether locks are copied, or else moved. Of two copies of a hold that have moved nobody can
    /// say which is which.
    copies: bool,
    /// Whether many requests are for several keys. These histories have no lost connections: the
    /// oracle knows only one order in which a hold that has moved is taken back.
    pub(super) has_several: bool,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        Self {
            tokens: rng.random_range(2..8),
            has_limits: seed % 2 == 1,
            longest: rng.random_range(1..60),
            dbs: rng.random_range(1..=DBS),
            names: rng.random_range(1..=NAMES),
            slowness: rng.random_range(1..=4),
            copies: seed % 4 == 0,
            has_several: false,
            rng,
        }
    }

    pub(super) fn below(&mut self, n: u8) -> u8 {
        self.rng.random_range(0..n)
    }

    fn place(&mut self) -> Place {
        match self.copies {
            true => at(0, self.below(2)),
            false => at(self.below(self.dbs), self.below(self.names)),
        }
    }

    fn ttl(&mut self) -> u64 {
        match self.copies {
            true => 1_000_000,
            false => self.rng.random_range(1..=self.longest),
        }
    }

    /// A request for a key.
    pub(super) fn request(&mut self) -> Op {
        let (place, token) = (self.place(), self.below(self.tokens));
        let modes = if self.has_limits { 6 } else { 3 };
        let mode = match self.below(modes) {
            0 => Exclusive,
            1..3 => Shared,
            _ => counted(u32::from(self.below(4)) + 2),
        };
        let until = self.rng.random_range(1..=self.longest * 2);
        let limits = match self.below(10) {
            0..=1 => NoWait,
            2..=3 => Until(until),
            4 => NotifyUntil(until),
            5..=6 => Notify,
            _ => Forever,
        };
        let grace = match self.below(2) {
            0 => 0,
            _ => self.rng.random_range(1..=self.longest * 2) as u32,
        };
        Op::Ask(place, keep(mode, token, self.ttl(), limits, grace))
    }

    pub(super) fn op(&mut self) -> Op {
        let (place, to, token) = (self.place(), self.place(), self.below(self.tokens));
        let n = usize::from(self.below(50));
        match self.below(100) {
            0..=34 => self.request(),
            35..=44 => Op::Ask(place, Request::Release(token)),
            47 if !self.has_several => self.seldom(place, token),
            45..=47 => Op::Ask(place, Request::Renew(token, self.ttl())),
            50 if !self.has_several => Op::Disconnect(n),
            48..=50 => Op::KillWaiter(n),
            51..=62 if self.below(self.slowness) > 0 => Op::Timer,
            51..=55 => Op::Lose(n),
            56..=62 => Op::Deliver(n),
            63..=70 => Op::Tick(self.rng.random_range(0..=self.longest / 3 + 1)),
            71..=84 => Op::Timer,
            85..=86 => Op::Delete(place),
            87..=89 if self.copies => Op::Copy(place, to, n < 25),
            87..=88 => Op::Rename(place, at(place.db, to.name)),
            89 => Op::Rename(place, at(to.db, place.name)),
            _ => self.rare(place, n),
        }
    }

    fn seldom(&mut self, place: Place, token: u8) -> Op {
        let request = match self.below(4) {
            0..=1 => Request::ReleaseLater(token, self.ttl()),
            2 => Request::Check(token),
            _ => Request::Exec(token),
        };
        Op::Ask(place, request)
    }

    fn rare(&mut self, place: Place, n: usize) -> Op {
        let some = n < 25;
        match self.below(if self.has_several { 38 } else { 43 }) {
            0..=2 if !self.copies => Op::SwapDbs(0, 1),
            3..=4 => Op::Flush(if some { place.db } else { EVERY_DB }),
            5..=7 if !self.copies => Op::Persist(place),
            8..=11 if !self.copies => Op::Expire(place, self.ttl()),
            12..=13 => Op::ExpireCycle,
            14 => Op::Demote(some),
            15..=20 => Op::Promote,
            21 => Op::SlotGoes(place.name, some),
            22..=26 => Op::SlotComes(place.name),
            27 => Op::RefuseWrites(true),
            28..=31 => Op::RefuseWrites(false),
            32 => Op::Overwrite(place),
            33 if !self.copies => Op::SetClock(-(n as i64)),
            34 if !self.copies => Op::SetClock(n as i64),
            35 => Op::Subscribe(some),
            36 => Op::PauseWrites(true),
            37..=40 => Op::PauseWrites(false),
            _ => Op::Tick(120),
        }
    }
}

#[test]
fn long_random_histories() {
    play_seeds(4_000, 1_000, Dice::op);
}

/// Plays random histories of so many steps.
pub(super) fn play_seeds(runs: u64, steps: usize, next: impl Fn(&mut Dice) -> Op) {
    let runs = effort::runs(runs);
    for seed in 0..runs {
        let mut dice = Dice::new(seed);
        let mut begin = World::new(seed % 8 < 6);
        begin.set_linger([0, dice.longest / 3][usize::from(seed % 3 == 0)]);
        play_random(&begin, seed, steps, || next(&mut dice));
    }
    println!("{runs} histories of {steps} steps");
}

/// Plays a random history of so many steps.
pub(super) fn play_random(begin: &World, seed: u64, steps: usize, mut next: impl FnMut() -> Op) {
    let mut world = begin.clone();
    let mut history = Vec::new();
    for _ in 0..steps {
        let op = next();
        history.push(op);
        if !is_fine(|| world.step(op)) {
            println!("seed {seed}, step {}", history.len());
            fail(begin, &history);
        }
    }
}
