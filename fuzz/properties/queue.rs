//! A lock and its queue, with requests in any order, and the invariants after each request.

use redis_lock::lock::codec::{decode, encode_effect, encode_state, Record};
use redis_lock::lock::{
    Ask, Deadline, Effect, Fate, FenceClock, Lock, Mode, Now, Refusal, Token, TokenBuf, Ttl,
    Waiting,
};
use redis_lock::wait::queue::{Next, Ticket, WaitQueue, Waiter};

/// Three bytes per step: the kind of step, the token with the flag to wait, and an amount.
pub fn run(data: &[u8]) {
    let mut world = World {
        lock: None,
        replica: None,
        queue: WaitQueue::default(),
        fences: FenceClock::new(),
        now_ms: 1,
        last_ticket: 0,
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
    queue: WaitQueue,
    fences: FenceClock,
    now_ms: u64,
    last_ticket: u64,
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
                self.ask(Ask { mode, token, ttl }, who & 64 != 0);
            }
            4 | 5 => {
                let effect = self.lock.as_ref().and_then(|lock| lock.release(token, now));
                effect.iter().for_each(|(effect, _)| self.apply(effect));
            }
            6 => {
                let ttl = Ttl::from_millis(amount + 1).expect("a ttl");
                let lock = self.lock.as_ref();
                let effect = lock.and_then(|lock| lock.renew(token, ttl, now));
                effect.iter().for_each(|effect| self.apply(effect));
            }
            7 => {
                let nth = usize::from(who) % self.queue.len().max(1);
                let ticket = self.queue.iter().nth(nth).map(|(ticket, _)| ticket);
                if let Some(ticket) = ticket {
                    assert!(self.queue.remove(ticket).is_some());
                    assert!(self.queue.remove(ticket).is_none());
                }
            }
            8 => self.now_ms += amount,
            9 => {
                (self.lock, self.replica) = (None, None);
                self.queue.lock_replaced();
                // Another lock replaces it, which two tokens share.
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

    fn now(&self) -> Now {
        Now::from_millis(self.now_ms)
    }

    fn ask(&mut self, ask: Ask<'_>, may_wait: bool) {
        let waiting = !self.queue.is_empty();
        let held = self.hold_of(ask.token);
        match self.acquire(ask, true) {
            Ok(()) => assert!(held || !waiting, "{ask:?} has passed those who wait"),
            Err(refusal @ (Refusal::Busy | Refusal::BusyUpgrade)) if may_wait => {
                self.last_ticket += 1;
                let waiter = Waiter {
                    mode: ask.mode,
                    token: TokenBuf::from(ask.token),
                    ttl: ask.ttl,
                    since_ms: self.now_ms,
                };
                self.queue.push(Ticket(self.last_ticket), waiter, refusal);
            }
            Err(refusal) => assert_ne!(refusal, Refusal::FencesExhausted),
        }
    }

    fn hold_of(&self, token: Token<'_>) -> bool {
        let lock = self.lock.as_ref();
        lock.is_some_and(|lock| lock.hold_of(token, self.now()).is_some())
    }

    fn acquire(&mut self, ask: Ask<'_>, behind_queue: bool) -> Result<(), Refusal> {
        let waiting = match behind_queue {
            true => self.queue.as_waiting(),
            false => Waiting::default(),
        };
        let (last, held) = (self.fences.last(), self.hold_of(ask.token));
        let now = self.now();
        let grant = Lock::acquire(self.lock.as_ref(), ask, now, waiting, &mut self.fences)?;
        // A new hold has a new fence, an old one keeps its own.
        assert_eq!(Some(grant.fence) > last, !held);
        self.apply(&grant.effect);
        let lock = self.lock.as_ref().expect("a lock that was granted");
        let (mode, hold) = lock.hold_of(ask.token, now).expect("the hold");
        assert_eq!((mode, hold.fence), (ask.mode, grant.fence));
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
        let mut owner: Option<TokenBuf> = None;
        let now = self.now();
        while let Some(next) = self.queue.next(self.lock.as_ref(), now) {
            let (ticket, waiter) = match next {
                Next::Grant(ticket, waiter) => (ticket, waiter),
                Next::Deadlock(ticket) => {
                    let waiter = self.queue.remove(ticket).expect("a waiter");
                    assert!(self.hold_of(waiter.token.as_token()), "{waiter:?}");
                    continue;
                }
            };
            let converts = self.hold_of(waiter.token.as_token());
            let granted = self.acquire(waiter.ask(), false);
            assert_eq!(granted, Ok(()), "{waiter:?} was next");
            assert_eq!(self.queue.remove(ticket).as_ref(), Some(&waiter));
            // Nobody is overtaken, except by a holder of a shared hold, and by requests of one
            // token.
            if !converts && owner.as_ref() != Some(&waiter.token) {
                let passed = self.queue.iter().find(|(other, _)| *other < ticket);
                assert!(passed.is_none(), "{waiter:?} has passed {passed:?}");
            }
            owner = Some(waiter.token);
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
        assert_eq!(self.queue.iter().count(), self.queue.len());
        let lock = self.lock.as_ref();
        let Some((_, first)) = self.queue.iter().next() else {
            return;
        };
        // A token in the queue that holds the lock upgrades, ahead of all others, and no other
        // holder waits.
        let upgrades = |w: &Waiter| w.mode == Mode::Exclusive && w.token == first.token;
        let owners = self.queue.iter().skip_while(|(_, w)| upgrades(w));
        let mut owners = owners.filter(|(_, w)| self.hold_of(w.token.as_token()));
        assert_eq!(owners.next(), None, "behind {first:?}");
        // No wake-up is lost: the head cannot be granted now …
        let admitted = Lock::admits(lock, first.mode, first.token.as_token(), now);
        assert!(admitted.is_err(), "{first:?} could have the lock");
        assert!(lock.is_some_and(|lock| !lock.is_free(now)));
        // … nor by time alone before the timer is due.
        let timer = self.queue.wakes_at(lock, now);
        let timer = timer.expect("a timer for those who wait");
        let until = Now::from_millis(timer.ms().max(self.now_ms));
        let next = self.queue.clone().next(lock, until);
        assert!(next.is_none(), "{next:?} is next before the timer is due");
    }
}
