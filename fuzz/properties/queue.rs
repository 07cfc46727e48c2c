//! A lock and its queue, with requests in any order, and the invariants after each request.

use redis_lock::lock::codec::{decode, encode_effect, encode_state, Record};
use redis_lock::lock::{
    Ask, Deadline, Effect, Fate, FenceClock, Lock, Mode, Now, Refusal, Token, Ttl, Waiting,
};
use redis_lock::wait::{
    KeyRef, Keys, Leaving, Listener, NewRequest, Registry, Removed, Step, Terms,
};
use std::collections::hash_map::RandomState;

const fn leaving(now: Now) -> Leaving {
    Leaving {
        now_us: now.us(),
        absent_per_key: usize::MAX,
    }
}

/// Three bytes per step: the kind of step, the token with the flag to wait, and an amount.
pub fn run(data: &[u8]) {
    let mut world = World {
        lock: None,
        replica: None,
        registry: Registry::default(),
        key: KeyRef::new(0, b"k"),
        fences: FenceClock::default(),
        now_ms: 1,
        last_client: 0,
        waiting: Vec::new(),
    };
    for step in data.chunks_exact(3) {
        world.serve();
        world.step(step[0], step[1], u64::from(step[2]));
        world.serve();
        world.check();
    }
}

struct World {
    lock: Option<Lock>,
    /// The lock of another server that received the effects.
    replica: Option<Lock>,
    registry: Registry<u64, RandomState>,
    key: KeyRef,
    fences: FenceClock,
    now_ms: u64,
    last_client: u64,
    /// The clients that wait.
    waiting: Vec<u64>,
}

impl World {
    fn step(&mut self, what: u8, who: u8, amount: u64) {
        let name = [who & 7];
        let token = Token::new(&name).expect("a token");
        let now = self.now();
        match what % 11 {
            0..=3 => {
                let mode = match what % 2 {
                    0 => Mode::Exclusive,
                    _ => Mode::Shared,
                };
                let ttl = Ttl::from_millis(amount + 1).expect("a ttl");
                let keep_ms = (who & 32 != 0).then_some(who.into());
                self.ask(Ask { mode, token, ttl }, who & 64 != 0, keep_ms);
            }
            4 | 5 => {
                let effect = self.lock.as_ref().and_then(|lock| lock.release(token, now));
                effect.iter().for_each(|(effect, _)| self.apply(effect));
                if effect.is_none() {
                    let gone = self.registry.give_up(&self.key, token);
                    gone.iter().for_each(|removed| self.gone(removed));
                    assert!(!self.has_place(token));
                }
            }
            6 => {
                let ttl = Ttl::from_millis(amount + 1).expect("a ttl");
                let lock = self.lock.as_ref();
                let effect = lock.and_then(|lock| lock.renew(token, ttl, now));
                effect.iter().for_each(|effect| self.apply(effect));
            }
            7 => {
                let nth = usize::from(who) % self.waiting.len().max(1);
                if let Some(client) = self.waiting.get(nth).copied() {
                    let removed = self.registry.remove_listener(client, leaving(now));
                    self.gone(&removed.expect("a waiter"));
                    assert!(self
                        .registry
                        .remove_listener(client, leaving(now))
                        .is_none());
                }
            }
            8 => self.now_ms += amount,
            9 => {
                (self.lock, self.replica) = (None, None);
                self.registry.mark_replaced(0, b"k");
                self.registry.agenda.marks.remove(&self.key);
                // Another lock takes its place, which two tokens share.
                let mode = Mode::Shared;
                let other = [amount as u8 & 7];
                let other = Token::new(&other).expect("a token");
                let ttl = Ttl::from_millis(amount + 1).expect("a ttl");
                for token in [token, other].into_iter().filter(|_| who & 64 != 0) {
                    let taken = self.acquire(Ask { mode, token, ttl }, false);
                    assert_eq!(taken, Ok(()));
                }
            }
            _ => {
                // An EXPIRE from outside, before the next effect.
                let deadline = Deadline::from_millis(self.now_ms + amount).expect("an instant");
                let effect = self.lock.as_ref().and_then(|lock| lock.cap(deadline));
                effect.iter().for_each(|effect| self.apply(effect));
            }
        }
    }

    fn has_place(&self, token: Token<'_>) -> bool {
        let mut waiters = self.registry.waiters(0, b"k");
        waiters.any(|waiter| waiter.token.as_bytes() == token.as_bytes())
    }

    fn keys(&self) -> Keys {
        Keys::One(self.key.clone())
    }

    fn now(&self) -> Now {
        Now::from_millis(self.now_ms)
    }

    fn ask(&mut self, ask: Ask<'_>, may_wait: bool, keep_ms: Option<u32>) {
        let had_place = self.has_place(ask.token);
        // A reader may enter beside absent readers whose turn has come.
        let stops = |w: redis_lock::wait::Waiter<'_, u64>| {
            w.listener.is_some() || w.mode == Mode::Exclusive || ask.mode == Mode::Exclusive
        };
        let waiting = self.registry.waiters(0, b"k").any(stops);
        let held = self.hold_of(ask.token);
        let refusal = match self.acquire(ask, true) {
            Ok(()) => {
                self.registry.lock_granted(&self.key);
                let resumed = self.registry.resume(&self.keys(), ask.token).is_some();
                assert!(held || resumed || !waiting, "{ask:?} has passed others");
                return;
            }
            Err(refusal @ (Refusal::Busy | Refusal::BusyUpgrade)) => refusal,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Deadlock);
                self.registry.resume(&self.keys(), ask.token);
                return;
            }
        };
        self.last_client += 1;
        let new = NewRequest {
            token: ask.token,
            mode: ask.mode,
            ttl: ask.ttl,
            listener: may_wait.then_some(Listener::Client(self.last_client)),
            times_out_at_us: None,
            keep_ms,
            is_server_generated: false,
            linger: None,
            result: None,
            user: None,
            refusal,
            now_us: self.now().us(),
        };
        self.registry.enter(&self.keys(), new);
        if may_wait {
            self.waiting.push(self.last_client);
        }
        let has_place = self.has_place(ask.token);
        assert!(has_place || !(may_wait || keep_ms.is_some_and(|ms| ms > 0)));
        assert!(had_place || has_place == (may_wait || keep_ms.is_some_and(|ms| ms > 0)));
    }

    /// A request has left.
    fn gone(&mut self, removed: &Removed<u64>) {
        match removed.listener {
            Some(Listener::Client(client)) => self.waiting.retain(|other| *other != client),
            _ => assert!(removed.is_last),
        }
    }

    fn hold_of(&self, token: Token<'_>) -> bool {
        let lock = self.lock.as_ref();
        lock.is_some_and(|lock| lock.hold_of(token, self.now()).is_some())
    }

    fn acquire(&mut self, ask: Ask<'_>, behind_queue: bool) -> Result<(), Refusal> {
        let (last, held) = (self.fences.last(), self.hold_of(ask.token));
        let now = self.now();
        let waiting = match behind_queue {
            true => {
                let asked = (ask.token, ask.mode);
                self.registry
                    .ahead_of(&self.key, asked, self.lock.as_ref(), now)
            }
            false => Waiting::default(),
        };
        let grant = Lock::acquire(self.lock.as_ref(), ask, now, waiting, &mut self.fences)?;
        // A new hold has a new fence, an old one keeps its own.
        assert_eq!(Some(grant.hold.fence) > last, !held);
        self.apply(&grant.effect(ask.token));
        let lock = self.lock.as_ref().expect("a lock that was granted");
        let (mode, hold) = lock.hold_of(ask.token, now).expect("the hold");
        assert_eq!((mode, hold.fence), (ask.mode, grant.hold.fence));
        assert_eq!(hold.deadline, Deadline::after(now, ask.ttl));
        Ok(())
    }

    /// Applies an effect here, and its encoded and decoded form to the replica.
    fn apply(&mut self, effect: &Effect<'_>) {
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        let Ok(Record::Effect(sent)) = decode(&bytes) else {
            panic!("{effect:?}")
        };
        for (effect, lock) in [(effect, &mut self.lock), (&sent, &mut self.replica)] {
            match lock {
                None => *lock = effect.apply_to_absent(),
                Some(held) => {
                    if effect.apply_to(held) == Fate::Free {
                        *lock = None;
                    }
                }
            }
        }
    }

    /// Serves the queue as the server does.
    fn serve(&mut self) {
        let now = self.now();
        while let Some(over) = self.registry.take_timed_out(leaving(now)) {
            assert_eq!((over.listener, over.is_last), (None, true));
        }
        loop {
            let lock = self.lock.as_ref();
            let step = self.registry.grant_next(
                &self.key,
                lock,
                &Terms::ANY,
                now,
                |now| now,
                &mut self.fences,
            );
            match step {
                None => return,
                Some(Step::Granted(granted)) => {
                    let text = granted.removed.token.text();
                    let token = text.as_token();
                    assert_eq!(self.hold_of(token), granted.grant.had_it);
                    self.apply(&granted.grant.effect(token));
                    self.gone(&granted.removed);
                    granted.into_delivery().expect("a client");
                }
                Some(Step::Refused(removed, refusal)) => {
                    assert_eq!(refusal, Refusal::Deadlock);
                    assert!(self.hold_of(removed.token.text().as_token()), "{removed:?}");
                    self.gone(&removed);
                }
                Some(step) => panic!("{step:?}"),
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(self.lock, self.replica);
        let now = self.now();
        if let Some(lock) = &self.lock {
            assert!(lock.mode() == Mode::Shared || lock.len() == 1);
            let bytes = encode_state(lock);
            assert_eq!(decode(&bytes), Ok(Record::State(lock.clone())));
        }
        assert_eq!(self.registry.counts().all(), self.registry.len());
        let all = self.registry.waiters(0, b"k");
        assert_eq!(
            all.filter(|w| w.listener.is_some()).count(),
            self.waiting.len()
        );
        let lock = self.lock.as_ref();
        // Absent readers at the head let everybody in whom the lock lets in.
        let mut waiters = self.registry.waiters(0, b"k").enumerate();
        let passed = |(_, w): &(usize, redis_lock::wait::Waiter<'_, u64>)| {
            w.listener.is_some() || w.mode == Mode::Exclusive
        };
        let Some((at, first)) = waiters.find(passed) else {
            return;
        };
        if first.listener.is_none() || (at > 0 && first.mode == Mode::Exclusive) {
            return;
        }
        // No wake-up is lost: the first one cannot be let in now …
        let admitted = Lock::admits(lock, first.mode, first.token.as_token(), now);
        assert!(admitted.is_err(), "{first:?} could have the lock");
        assert!(lock.is_some_and(|lock| !lock.is_free(now)));
        // … nor by time alone before the timer is due.
        let timer = self.registry.wakes_at(&self.key, lock, now);
        let timer = timer.expect("a timer for those who wait");
        let until = Now::from_millis(timer.ms().max(self.now_ms));
        let admitted = Lock::admits(lock, first.mode, first.token.as_token(), until);
        assert!(
            admitted.is_err(),
            "{first:?} is next before the timer is due"
        );
    }
}
