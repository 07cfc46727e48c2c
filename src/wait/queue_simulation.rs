//! The queue and the lock together against a naive oracle: all short histories, and long random ones.
//!
//! The oracle keeps holds and waiters in two lists and walks them from end to end. Both sides are served
//! after every step, as the server's shell does. They must grant and refuse the same requests; a new hold's
//! fence tells its rank among the grants. After every step it is also shown that nobody waits for ever,
//! even where no hold ends by its deadline.

// Long because: the driver and the checks after each step are read together.

mod oracle;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::queue::{Next, Ticket, WaitQueue, Waiter};
use crate::lock::*;
use oracle::{NaiveHold, Oracle};

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A request that waits if it must, or does not.
    Ask(Mode, u8, u64, Block),
    Release(u8),
    Renew(u8, u64),
    /// The waiter at this place in the queue gives up.
    Cancel(Seat),
    Tick(u64),
    /// The key goes, as by DEL.
    Delete,
    /// Another lock takes the place of the one under the key, as by RENAME. Two tokens share it, or one
    /// token has it alone.
    Replace(u8, u8, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug)]
enum Seat {
    First,
    Last,
    Nth(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request that was granted at once, or refused.
    Answered(Option<u64>),
    Deadlock,
    Waits(u64),
    /// A waiter, and its fence.
    Granted(u64, u64),
    /// A waiter that was told of a deadlock.
    Refused(u64),
    Done(bool),
}

const FIRST_FENCE: u64 = 1 << 50;

/// What is tested, put together as the shell does it.
#[derive(Clone)]
struct Real {
    lock: Option<Lock>,
    queue: WaitQueue,
    last_fence: u64,
    last_ticket: u64,
}

impl Real {
    fn ask(&mut self, ask: Ask<'_>, block: Block, now: Now, events: &mut Vec<Event>) {
        match self.acquire(ask, now, true) {
            Ok(fence) => events.push(Event::Answered(Some(fence))),
            Err(Refusal::Deadlock) => events.push(Event::Deadlock),
            Err(_) if block == Block::No => events.push(Event::Answered(None)),
            Err(refusal) => {
                self.last_ticket += 1;
                let waiter = Waiter {
                    mode: ask.mode,
                    token: ask.token.into(),
                    ttl: ask.ttl,
                    since_ms: now.ms(),
                };
                self.queue.push(Ticket(self.last_ticket), waiter, refusal);
                events.push(Event::Waits(self.last_ticket));
            }
        }
    }

    fn acquire(&mut self, ask: Ask<'_>, now: Now, behind_queue: bool) -> Result<u64, Refusal> {
        let mut fences = FenceClock::new();
        fences.observe(Fence::new(self.last_fence).unwrap());
        let waiting = match behind_queue {
            true => self.queue.as_waiting(),
            false => Waiting::default(),
        };
        let grant = Lock::acquire(self.lock.as_ref(), ask, now, waiting, &mut fences)?;
        self.last_fence = fences.last().unwrap().get();
        self.apply(&grant.effect);
        Ok(grant.fence.get())
    }

    fn apply(&mut self, effect: &Effect<'_>) {
        match &mut self.lock {
            None => self.lock = effect.apply_to_absent(),
            Some(lock) => {
                if effect.apply_to(lock) == Fate::Free {
                    self.lock = None;
                }
            }
        }
    }

    fn serve(&mut self, now: Now, events: &mut Vec<Event>) {
        while let Some(next) = self.queue.next(self.lock.as_ref(), now) {
            match next {
                Next::Grant(ticket, waiter) => {
                    let fence = self.acquire(waiter.ask(), now, false).unwrap();
                    assert_eq!(self.queue.remove(ticket), Some(waiter));
                    events.push(Event::Granted(ticket.0, fence));
                }
                Next::Deadlock(ticket) => {
                    assert!(self.queue.remove(ticket).is_some());
                    events.push(Event::Refused(ticket.0));
                }
            }
        }
    }

    fn replace(&mut self, asks: &[Ask<'_>], now: Now) {
        self.lock = None;
        self.queue.lock_replaced();
        for ask in asks {
            self.acquire(*ask, now, false).unwrap();
        }
    }
}

#[derive(Clone)]
struct World {
    now_ms: u64,
    real: Real,
    oracle: Oracle,
}

impl World {
    fn new() -> Self {
        Self {
            now_ms: 1,
            real: Real {
                lock: None,
                queue: WaitQueue::default(),
                last_fence: FIRST_FENCE,
                last_ticket: 0,
            },
            oracle: Oracle::new(),
        }
    }

    fn check(&mut self, op: Op) {
        let (mut real, mut expected) = (Vec::new(), Vec::new());
        if let Op::Tick(ms) = op {
            self.now_ms += ms;
        }
        let now = Now::from_millis(self.now_ms);
        self.real.serve(now, &mut real);
        self.oracle.serve(self.now_ms, &mut expected);
        self.step(op, now, &mut real, &mut expected);
        self.real.serve(now, &mut real);
        self.oracle.serve(self.now_ms, &mut expected);
        real.sort_unstable();
        expected.sort_unstable();
        assert_eq!(real, expected, "{op:?} then {:#?}", self.oracle);
        self.check_state();
    }

    fn step(&mut self, op: Op, now: Now, real: &mut Vec<Event>, expected: &mut Vec<Event>) {
        let name;
        match op {
            Op::Ask(mode, token, ttl, block) => {
                name = [token];
                let ask = Ask {
                    mode,
                    token: Token::new(&name).unwrap(),
                    ttl: Ttl::from_millis(ttl).unwrap(),
                };
                self.real.ask(ask, block, now, real);
                expected.push(self.oracle.ask(mode, token, ttl, block, self.now_ms));
            }
            Op::Release(token) => {
                name = [token];
                let token = Token::new(&name).unwrap();
                let lock = self.real.lock.as_ref();
                let effect = lock.and_then(|lock| lock.release(token, now));
                let effect = effect.map(|(effect, _)| effect);
                effect
                    .into_iter()
                    .for_each(|effect| self.real.apply(&effect));
                real.push(Event::Done(effect.is_some()));
                expected.push(Event::Done(self.oracle.owns(name[0])));
                self.oracle.release(name[0]);
            }
            Op::Renew(token, ttl) => {
                name = [token];
                let (token, ttl) = (Token::new(&name).unwrap(), Ttl::from_millis(ttl).unwrap());
                let lock = self.real.lock.as_ref();
                let effect = lock.and_then(|lock| lock.renew(token, ttl, now));
                effect
                    .into_iter()
                    .for_each(|effect| self.real.apply(&effect));
                real.push(Event::Done(effect.is_some()));
                let own = self
                    .oracle
                    .holds
                    .iter_mut()
                    .find(|hold| hold.token == name[0]);
                let renewed = own.map(|hold| hold.deadline = self.now_ms + ttl.ms());
                expected.push(Event::Done(renewed.is_some()));
            }
            Op::Cancel(seat) => self.cancel(seat),
            Op::Tick(_) => {}
            Op::Delete => {
                self.real.replace(&[], now);
                self.oracle.holds.clear();
            }
            Op::Replace(one, other, ttl) => {
                let mode = match one == other {
                    true => Mode::Exclusive,
                    false => Mode::Shared,
                };
                let names = [[one], [other]];
                let asks = names.each_ref().map(|name| Ask {
                    mode,
                    token: Token::new(name).unwrap(),
                    ttl: Ttl::from_millis(ttl).unwrap(),
                });
                self.real.replace(&asks, now);
                self.oracle.holds.clear();
                for token in [one, other] {
                    self.oracle.take(token, mode, self.now_ms + ttl);
                }
            }
        }
    }

    fn cancel(&mut self, seat: Seat) {
        let tickets: Vec<u64> = self.oracle.waiters.iter().map(|w| w.ticket).collect();
        let chosen = match seat {
            Seat::First => tickets.first(),
            Seat::Last => tickets.last(),
            Seat::Nth(n) => tickets.get(n % tickets.len().max(1)),
        };
        if let Some(chosen) = chosen {
            assert!(self.real.queue.remove(Ticket(*chosen)).is_some());
            self.oracle
                .waiters
                .retain(|waiter| waiter.ticket != *chosen);
        }
    }

    fn check_state(&self) {
        let queued: Vec<u64> = self.real.queue.iter().map(|(ticket, _)| ticket.0).collect();
        let expected: Vec<u64> = self.oracle.waiters.iter().map(|w| w.ticket).collect();
        assert_eq!(queued, expected, "the order of the queue");
        assert_eq!(self.real.queue.len(), expected.len());
        let exclusive = |hold: &NaiveHold| hold.mode == Mode::Exclusive;
        let alone = !self.oracle.holds.iter().any(exclusive) || self.oracle.holds.len() == 1;
        assert!(alone, "two holders: {:?}", self.oracle.holds);
        assert!(
            !self.oracle.holds.is_empty() || expected.is_empty(),
            "free while somebody waits"
        );
        self.check_alarm();
        self.check_no_deadlock();
    }

    /// Lets everybody release who does not wait, as often as somebody can: all must have been granted then.
    /// An owner that waits releases nothing before it is answered, and renews.
    fn check_no_deadlock(&self) {
        let (mut future, mut events) = (self.oracle.clone(), Vec::new());
        while !future.waiters.is_empty() {
            let waits = |token| future.waiters.iter().any(|waiter| waiter.token == token);
            let free = future.holds.iter().find(|hold| !waits(hold.token));
            let Some(free) = free.map(|hold| hold.token) else {
                panic!("all wait for each other: {:#?}", self.oracle);
            };
            future.release(free);
            future.serve(self.now_ms, &mut events);
        }
    }

    /// Lets time alone pass for the oracle: the alarm must not be later than the first grant.
    fn check_alarm(&self) {
        if self.oracle.waiters.is_empty() {
            return;
        }
        let now = Now::from_millis(self.now_ms);
        let alarm = self.real.queue.wakes_at(self.real.lock.as_ref(), now);
        let alarm = alarm.expect("somebody waits for a held lock").ms();
        let mut ends: Vec<u64> = self
            .oracle
            .holds
            .iter()
            .map(|hold| hold.deadline + 1)
            .collect();
        ends.sort_unstable();
        for end in ends {
            let (mut future, mut events) = (self.oracle.clone(), Vec::new());
            future.serve(end, &mut events);
            if !events.is_empty() {
                assert!(
                    alarm < end,
                    "wakes after {alarm}, needed at {end}: {:#?}",
                    self.oracle
                );
                return;
            }
        }
        panic!("nobody is ever granted: {:#?}", self.oracle);
    }
}

fn all_histories(world: &World, ops: &[Op], depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    ops.iter()
        .map(|op| {
            let mut next = world.clone();
            next.check(*op);
            all_histories(&next, ops, depth - 1)
        })
        .sum()
}

fn alphabet(tokens: &[u8]) -> Vec<Op> {
    let mut ops = vec![Op::Tick(1), Op::Cancel(Seat::First), Op::Cancel(Seat::Last)];
    ops.push(Op::Ask(Mode::Shared, tokens[0], 2, Block::No));
    for &token in tokens {
        ops.push(Op::Ask(Mode::Exclusive, token, 2, Block::Yes));
        ops.push(Op::Ask(Mode::Shared, token, 1, Block::Yes));
        ops.push(Op::Release(token));
    }
    ops
}

/// Requests of one token in both modes, waiters that give up in the middle, and locks that are replaced.
fn upgrades() -> Vec<Op> {
    let mut ops = vec![
        Op::Cancel(Seat::First),
        Op::Cancel(Seat::Nth(1)),
        Op::Release(b'a'),
        Op::Tick(2),
    ];
    for token in *b"abc" {
        ops.push(Op::Ask(Mode::Exclusive, token, 9, Block::Yes));
        ops.push(Op::Ask(Mode::Shared, token, 1, Block::Yes));
    }
    ops.push(Op::Replace(b'a', b'b', 2));
    ops.push(Op::Replace(b'b', b'c', 3));
    ops.push(Op::Replace(b'b', b'b', 2));
    ops
}

#[test]
fn all_histories_of_six_steps_with_upgrades_and_replacements() {
    let histories = all_histories(&World::new(), &upgrades(), 6);
    assert_eq!(histories, 13u64.pow(6));
    println!("{histories} histories of 6 steps");
}

#[test]
fn all_histories_of_six_steps_by_three_tokens() {
    let histories = all_histories(&World::new(), &alphabet(b"abc"), 6);
    assert_eq!(histories, 13u64.pow(6));
    println!("{histories} histories of 6 steps");
}

#[test]
fn all_histories_of_seven_steps_by_two_tokens() {
    let histories = all_histories(&World::new(), &alphabet(b"ab"), 7);
    assert_eq!(histories, 10u64.pow(7));
    println!("{histories} histories of 7 steps");
}

#[test]
fn long_random_histories() {
    const RUNS: u64 = 500;
    const STEPS: usize = 1_000;
    for seed in 0..RUNS {
        let mut rng = StdRng::seed_from_u64(seed);
        let tokens: u8 = rng.random_range(2..20);
        let longest = rng.random_range(1..60);
        let mut world = World::new();
        for _ in 0..STEPS {
            let token = rng.random_range(0..tokens);
            let ttl = rng.random_range(1..=longest);
            let mode = match rng.random_range(0..3) {
                0 => Mode::Exclusive,
                _ => Mode::Shared,
            };
            let block = if rng.random_bool(0.9) {
                Block::Yes
            } else {
                Block::No
            };
            let other = rng.random_range(0..tokens);
            world.check(match rng.random_range(0..20) {
                0..=7 => Op::Ask(mode, token, ttl, block),
                8..=12 => Op::Release(token),
                13 => Op::Renew(token, ttl),
                14..=15 => Op::Cancel(Seat::Nth(rng.random_range(0..50))),
                16 if rng.random_bool(0.5) => Op::Delete,
                16 => Op::Replace(token, other, ttl),
                _ => Op::Tick(rng.random_range(0..=longest / 3 + 1)),
            });
        }
    }
    println!("{RUNS} histories of {STEPS} steps");
}

#[test]
fn many_requests_of_one_token_in_both_modes_are_no_scan() {
    // A scan of the writers for each of the readers would be 10^10 steps.
    const EACH: u64 = 100_000;
    let World { mut real, .. } = World::new();
    let (now, mut events) = (Now::from_millis(1), Vec::new());
    let ask = |mode, token| Ask {
        mode,
        token: Token::new(token).unwrap(),
        ttl: Ttl::from_millis(1).unwrap(),
    };
    real.ask(ask(Mode::Shared, b"r"), Block::Yes, now, &mut events);
    real.ask(ask(Mode::Exclusive, b"w"), Block::Yes, now, &mut events);
    real.ask(ask(Mode::Shared, b"x"), Block::Yes, now, &mut events);
    for mode in [Mode::Exclusive, Mode::Shared] {
        for _ in 0..EACH {
            real.ask(ask(mode, b"x"), Block::Yes, now, &mut events);
        }
    }
    assert!(real.queue.remove(Ticket(1)).is_some());
    events.clear();
    real.serve(now, &mut events);
    assert_eq!(events.len() as u64, 1 + EACH);
    assert_eq!(real.queue.len() as u64, EACH);
    assert!(real.queue.as_waiting().upgrading.is_some());
}

#[test]
fn to_give_up_in_the_middle_of_a_long_queue_is_no_scan() {
    // A scan for each of these would be 10^10 steps, and this test would not end.
    const WAITERS: u64 = 200_000;
    let mut queue = WaitQueue::default();
    for n in 0..WAITERS {
        let waiter = Waiter {
            mode: Mode::Exclusive,
            token: Token::new(&n.to_le_bytes()).unwrap().into(),
            ttl: Ttl::from_millis(1).unwrap(),
            since_ms: 0,
        };
        queue.push(Ticket(n), waiter, Refusal::Busy);
    }
    for n in 0..WAITERS {
        let from_the_middle = (WAITERS / 2 + n) % WAITERS;
        assert!(queue.remove(Ticket(from_the_middle)).is_some());
    }
    assert!(queue.is_empty());
}
