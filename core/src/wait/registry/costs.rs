//! What a step costs in a long queue. A scan at each of the steps here would be 10^10 steps, and
//! the test would not end.

use std::hash::{BuildHasherDefault, DefaultHasher};

use crate::lock::{Ask, Effect, Fate, FenceClock, Limit, Lock, Mode, Now, Token, Ttl};
use crate::wait::{KeyRef, Keys, Leaving, Listener, NewRequest, Registry, Step, Terms};

const EACH: u64 = 10_000;

/// A lock and its queue.
struct World {
    lock: Option<Lock>,
    registry: Registry<u64, BuildHasherDefault<DefaultHasher>>,
    key: KeyRef,
    fences: FenceClock,
    now: Now,
    last_client: u64,
    /// How many were granted: at once, or after a wait.
    granted: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Yes,
    No,
    /// With KEEP.
    Keep,
    /// With KEEP, without BLOCK.
    NoKeep,
}

impl World {
    fn new() -> Self {
        Self {
            lock: None,
            registry: Registry::default(),
            key: KeyRef::new(0, b"k"),
            fences: FenceClock::default(),
            now: Now::from_millis(1),
            last_client: 0,
            granted: 0,
        }
    }

    fn ask(&mut self, ask: Ask<'_>, block: Block) {
        let (lock, keys) = (self.lock.as_ref(), Keys::One(self.key.clone()));
        let comer = (ask.token, ask.mode);
        let waiting = self.registry.ahead_of(&self.key, comer, lock, self.now);
        let refusal = match Lock::acquire(lock, ask, self.now, waiting, &mut self.fences) {
            Ok(grant) => {
                self.apply(&grant.effect(ask.token));
                self.registry.lock_granted(&self.key);
                self.registry.resume(&keys, ask.token);
                self.granted += 1;
                return;
            }
            Err(refusal) => refusal,
        };
        self.last_client += 1;
        let waits = matches!(block, Block::Yes | Block::Keep);
        let keeps = matches!(block, Block::Keep | Block::NoKeep);
        let new = NewRequest {
            token: ask.token,
            mode: ask.mode,
            ttl: ask.ttl,
            listener: waits.then_some(Listener::Client(self.last_client)),
            times_out_at_us: None,
            keep_ms: keeps.then_some(2),
            is_server_generated: false,
            linger: None,
            result: None,
            user: None,
            refusal,
            now_us: self.now.us(),
        };
        self.registry.enter(&keys, new);
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

    fn serve(&mut self) {
        let mut terms = Terms::ANY;
        loop {
            let (lock, fences) = (self.lock.as_ref(), &mut self.fences);
            let next =
                self.registry
                    .grant_next(&self.key, lock, &terms, self.now, |now| now, fences);
            terms.is_first = false;
            match next {
                None => return,
                Some(Step::Granted(granted)) => {
                    let token = granted.removed.token.text();
                    self.apply(&granted.grant.effect(token.as_token()));
                    self.granted += 1;
                }
                Some(step) => panic!("{step:?}"),
            }
        }
    }

    fn release(&mut self, token: Token<'_>) {
        let released = self.lock.as_ref().unwrap().release(token, self.now);
        self.apply(&released.unwrap().0);
    }

    /// How many were granted since the last question.
    fn granted(&mut self) -> u64 {
        std::mem::take(&mut self.granted)
    }
}

fn ask(mode: Mode, name: &[u8]) -> Ask<'_> {
    Ask {
        mode,
        token: Token::new(name).unwrap(),
        ttl: Ttl::from_millis(1_000).unwrap(),
    }
}

fn permit(name: &[u8], limit: u32) -> Ask<'_> {
    ask(Mode::of_limit(limit).unwrap(), name)
}

fn names(from: u64) -> impl DoubleEndedIterator<Item = [u8; 8]> {
    (from..from + EACH).map(u64::to_le_bytes)
}

#[test]
fn to_give_up_in_the_middle_of_a_long_queue_is_no_scan() {
    const WAITERS: u64 = 2 * EACH;
    let mut world = World::new();
    for n in 0..=WAITERS {
        world.ask(ask(Mode::Exclusive, &n.to_le_bytes()), Block::Yes);
    }
    for n in 0..WAITERS {
        let client = 1 + (WAITERS / 2 + n) % WAITERS;
        let removed = world.registry.remove_listener(client, Leaving::at(0));
        assert!(removed.is_some());
    }
    assert!(world.registry.is_empty());
}

#[test]
fn a_long_run_of_absent_readers_at_the_head_is_no_scan() {
    let mut world = World::new();
    world.ask(ask(Mode::Exclusive, b"w"), Block::Yes);
    for name in names(0) {
        world.ask(ask(Mode::Shared, &name), Block::NoKeep);
    }
    for name in names(EACH) {
        world.ask(ask(Mode::Shared, &name), Block::Yes);
    }
    world.lock = None;
    world.granted();
    // Those who listen behind them are readers, too, and enter.
    world.serve();
    assert_eq!(world.granted(), EACH);
    // Each of the absent ones asks again, the last one first.
    for name in names(0).rev() {
        world.ask(ask(Mode::Shared, &name), Block::No);
        world.serve();
    }
    assert_eq!(world.granted(), EACH);
    assert!(world.registry.is_empty());
}

#[test]
fn an_absent_writer_that_polls_ahead_of_many_is_no_scan() {
    let mut world = World::new();
    world.ask(ask(Mode::Exclusive, b"holder"), Block::Yes);
    world.ask(ask(Mode::Exclusive, b"poller"), Block::NoKeep);
    for name in names(0) {
        world.ask(ask(Mode::Shared, &name), Block::Yes);
    }
    world.lock = None;
    world.granted();
    for _ in 0..EACH {
        // The lock is kept for the one that polls.
        world.serve();
    }
    assert_eq!(world.granted(), 0);
    world.ask(ask(Mode::Exclusive, b"poller"), Block::No);
    assert_eq!(world.granted(), 1);
    world.serve();
    assert_eq!(world.registry.len() as u64, EACH);
}

#[test]
fn many_absent_permits_are_no_scan() {
    let mut world = World::new();
    world.ask(ask(Mode::Exclusive, b"w"), Block::Yes);
    for name in names(0) {
        world.ask(permit(&name, Limit::MAX), Block::NoKeep);
    }
    world.lock = None;
    // Each of the absent ones asks again after the others have come, the last one first.
    for name in names(EACH).chain(names(0).rev()) {
        world.granted();
        world.serve();
        world.ask(permit(&name, Limit::MAX), Block::No);
        assert_eq!(world.granted(), 1);
        world.serve();
    }
    assert!(world.registry.is_empty());
}

#[test]
fn many_conversions_are_no_scan() {
    const EACH: u64 = 1_000;
    let names = |from| names(from).take(EACH as usize);
    let mut world = World::new();
    let (ttl, last) = (Ttl::from_millis(1_000).unwrap(), Token::new(b"last"));
    for block in [Block::Keep, Block::NoKeep] {
        world.ask(permit(b"last", Limit::MAX), Block::No);
        for name in names(0) {
            world.ask(permit(&name, Limit::MAX), Block::No);
            world.serve();
        }
        for name in names(0) {
            world.ask(permit(&name, EACH as u32), block);
            world.serve();
        }
        for name in names(0) {
            let (token, lock) = (Token::new(&name).unwrap(), world.lock.as_ref());
            let renewed = lock.unwrap().renew(token, ttl, world.now);
            world.apply(&renewed.unwrap());
            world.serve();
        }
        assert_eq!(world.registry.len() as u64, EACH);
        world.granted();
        // One holder fewer: now they are granted, or may ask again.
        world.release(last.unwrap());
        world.serve();
        let granted = if block == Block::Keep { EACH } else { 0 };
        assert_eq!(world.granted(), granted);
        for name in names(0) {
            let token = Token::new(&name).unwrap();
            world.release(token);
            world.serve();
            world.registry.give_up(&world.key, token);
        }
        assert!(world.registry.is_empty() && world.lock.is_none());
    }
}
