//! The requests and replies of the clients, and the holds that follow from them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redis_lock::lock::Mode;

use crate::harness::Reply;

/// One life of the server.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// By client number.
    pub parts: Vec<Part>,
}

/// A client's part in a life. It sends one request after the other.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Its holds at the beginning, as the server reports them.
    pub base: Holds,
    /// In order. Only the last one may lack a reply.
    pub requests: Vec<Request>,
}

/// What a client sends at once.
#[derive(Clone, Debug)]
pub struct Order {
    /// One step, or several in a transaction or a script, which are executed all or none.
    pub steps: Vec<Step>,
    /// The steps are one LOCK.MACQUIRE: all are granted, or none is.
    pub is_several: bool,
}

/// An order with its answers.
#[derive(Clone, Debug)]
pub struct Request {
    pub steps: Vec<Step>,
    pub is_several: bool,
    /// Just before it was sent, by the clock of the machine, which is the server's too.
    pub asked_us: u64,
    /// Just after the reply was read, or the connection had broken.
    pub ended_us: u64,
    /// One per step. `None` if the server ended before its reply.
    pub answers: Option<Vec<Answer>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub what: What,
    pub key: String,
    /// It belongs to one client, for one acquisition of one lock or of two.
    pub token: String,
    /// Unused for a release.
    pub ttl_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// With the timeout of BLOCK. 0 means forever.
    Acquire(Mode, Option<u64>),
    Release,
    Renew,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Fence(u64),
    Null,
    Done(bool),
    Deadlock,
}

/// The holds of one client, by key and token.
pub type Holds = BTreeMap<(String, String), Held>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub mode: Mode,
    /// `None` if there was no reply.
    pub fence: Option<u64>,
    /// The deadline, as closely as the clients can know it.
    pub ends_ms: RangeInclusive<u64>,
}

impl Held {
    /// A hold counts until its deadline, and Redis 8.2 deletes a key within the millisecond of its
    /// deadline.
    pub fn surely_lives_at(&self, ms: u64) -> bool {
        ms < *self.ends_ms.start()
    }

    pub fn is_surely_over_at(&self, ms: u64) -> bool {
        ms > *self.ends_ms.end()
    }

    fn may_be(&self, other: &Self) -> bool {
        let fences = (self.fence, other.fence);
        let overlap = self.ends_ms.start() <= other.ends_ms.end()
            && other.ends_ms.start() <= self.ends_ms.end();
        let same_fence = !matches!(fences, (Some(one), Some(two)) if one != two);
        self.mode == other.mode && same_fence && overlap
    }
}

/// Whether the holds observed between two instants may be the remainder of these.
pub fn may_be_seen(holds: &Holds, seen: &Holds, look_ms: &RangeInclusive<u64>) -> bool {
    let mut unseen = holds.iter().filter(|(whose, _)| !seen.contains_key(*whose));
    unseen.all(|(_, held)| !held.surely_lives_at(*look_ms.end()))
        && seen
            .iter()
            .all(|(whose, one)| holds.get(whose).is_some_and(|held| held.may_be(one)))
}

impl Order {
    pub fn of(steps: Vec<Step>) -> Self {
        Self {
            steps,
            is_several: false,
        }
    }

    /// The commands.
    pub fn lines(&self) -> Vec<String> {
        let (Some(first), true) = (self.steps.first(), self.is_several) else {
            return self.steps.iter().map(Step::line).collect();
        };
        let keys: Vec<_> = self.steps.iter().map(|step| &step.key[..]).collect();
        let modes = self.steps.iter().map(|step| match step.what {
            What::Acquire(mode, _) => mode.name().to_uppercase(),
            other => panic!("{other:?} of several keys"),
        });
        let block = match first.what {
            What::Acquire(_, Some(ms)) => format!(" BLOCK {ms}"),
            _ => String::new(),
        };
        let (count, keys) = (keys.len(), keys.join(" "));
        let modes = modes.collect::<Vec<_>>().join(" ");
        let Step { token, ttl_ms, .. } = first;
        vec![format!(
            "LOCK.MACQUIRE {count} {keys} {token} {ttl_ms} MODES {modes}{block}"
        )]
    }
}

impl Step {
    pub fn line(&self) -> String {
        let Self {
            what,
            key,
            token,
            ttl_ms,
        } = self;
        let block = |block: &Option<u64>| block.map_or(String::new(), |ms| format!(" BLOCK {ms}"));
        match what {
            What::Acquire(Mode::Shared, timeout) => {
                format!("RWLOCK.RLOCK {key} {token} {ttl_ms}{}", block(timeout))
            }
            // Two names of one command.
            What::Acquire(Mode::Exclusive, timeout) if ttl_ms % 2 == 0 => {
                format!("RWLOCK.WLOCK {key} {token} {ttl_ms}{}", block(timeout))
            }
            What::Acquire(Mode::Exclusive, timeout) => {
                format!("LOCK.ACQUIRE {key} {token} {ttl_ms}{}", block(timeout))
            }
            What::Acquire(Mode::Counted(limit), timeout) => {
                let (limit, block) = (limit.get(), block(timeout));
                format!("LOCK.ACQUIRE {key} {token} {ttl_ms} LIMIT {limit}{block}")
            }
            What::Release => format!("LOCK.RELEASE {key} {token}"),
            What::Renew => format!("LOCK.RENEW {key} {token} {ttl_ms}"),
        }
    }

    /// The hold that the step gives if it is executed between two instants.
    fn held(&self, mode: Mode, fence: Option<u64>, when_ms: &RangeInclusive<u64>) -> Held {
        let ends_ms = when_ms.start() + self.ttl_ms..=when_ms.end() + self.ttl_ms;
        Held {
            mode,
            fence,
            ends_ms,
        }
    }

    pub fn whose(&self) -> (String, String) {
        (self.key.clone(), self.token.clone())
    }

    /// Changes the holds according to a reply.
    ///
    /// # Errors
    ///
    /// If the reply is impossible.
    fn apply(
        &self,
        answer: Answer,
        holds: &mut Holds,
        when_ms: &RangeInclusive<u64>,
    ) -> Result<(), String> {
        let own = holds.get(&self.whose());
        let lives = own.is_some_and(|own| own.surely_lives_at(*when_ms.end()));
        let is_over = own.is_none_or(|own| own.is_surely_over_at(*when_ms.start()));
        let wrong = |why: &str| Err(format!("{why}: {answer:?} to {self:?}, which had {own:?}"));
        match (self.what, answer) {
            (What::Acquire(mode, _), Answer::Fence(fence)) => {
                if own.is_some_and(|own| lives && own.fence.is_some_and(|own| own != fence)) {
                    return wrong("another fence for a hold");
                }
                let held = self.held(mode, Some(fence), when_ms);
                holds.insert(self.whose(), held);
            }
            (What::Acquire(mode, _), Answer::Null) => {
                if lives && own.is_some_and(|own| own.mode == mode) {
                    return wrong("refused to the holder");
                }
            }
            // The token may hold other locks, and wait for this one.
            (What::Acquire(_, Some(_)), Answer::Deadlock) => {}
            (What::Acquire(Mode::Exclusive | Mode::Counted(_), None), Answer::Deadlock) => {}
            (What::Release | What::Renew, Answer::Done(false)) if lives => {
                return wrong("a hold was lost");
            }
            (What::Release | What::Renew, Answer::Done(true)) if is_over => {
                return wrong("a hold came back");
            }
            (What::Renew, Answer::Done(true)) => {
                let renewed = own.map(|own| self.held(own.mode, own.fence, when_ms));
                holds.extend(renewed.map(|held| (self.whose(), held)));
            }
            (What::Release | What::Renew, Answer::Done(_)) => {
                holds.remove(&self.whose());
            }
            _ => return wrong("no answer to this"),
        }
        Ok(())
    }

    /// The possible holds after a step without a reply.
    fn possible(&self, holds: &Holds, when_ms: &RangeInclusive<u64>) -> Vec<Holds> {
        let mut done = holds.clone();
        let own = holds.get(&self.whose());
        match (self.what, own) {
            (What::Acquire(mode, _), own) => {
                // It keeps its fence, unless it has just expired and is a new hold now.
                let kept = own.filter(|own| own.surely_lives_at(*when_ms.end()));
                let fence = kept.and_then(|own| own.fence);
                done.insert(self.whose(), self.held(mode, fence, when_ms));
            }
            (What::Renew, Some(own)) => {
                done.insert(self.whose(), self.held(own.mode, own.fence, when_ms));
            }
            (What::Release, Some(_)) => drop(done.remove(&self.whose())),
            (What::Renew | What::Release, None) => return vec![done],
        }
        vec![done, holds.clone()]
    }
}

impl Request {
    pub fn when_ms(&self) -> RangeInclusive<u64> {
        self.asked_us / 1_000..=self.ended_us / 1_000
    }

    /// Changes the holds according to the replies.
    ///
    /// # Errors
    ///
    /// If a reply is impossible.
    pub fn apply(&self, holds: &mut Holds) -> Result<(), String> {
        let when_ms = self.when_ms();
        holds.retain(|_, held| !held.is_surely_over_at(*when_ms.start()));
        let answers = self.answers.iter().flatten();
        let mut both = self.steps.iter().zip(answers);
        both.try_for_each(|(step, answer)| step.apply(*answer, holds, &when_ms))
    }

    /// The possible holds if it was executed without a reply.
    pub fn possible(&self, holds: &Holds) -> Vec<Holds> {
        let when_ms = self.when_ms();
        if self.is_several {
            let mut done = holds.clone();
            for step in &self.steps {
                // The first of the two has the hold.
                let granted = step.possible(&done, &when_ms).into_iter().next();
                done = granted.expect("a grant");
            }
            return vec![done, holds.clone()];
        }
        let mut all = vec![holds.clone()];
        for step in &self.steps {
            let next = all.iter().flat_map(|holds| step.possible(holds, &when_ms));
            all = next.collect();
        }
        all
    }
}

impl Answer {
    /// Scripts return 0 for nil.
    #[track_caller]
    pub fn read(what: What, reply: &Reply) -> Self {
        match (what, reply) {
            (What::Acquire(..), Reply::Nil | Reply::Int(0)) => Answer::Null,
            (What::Acquire(..), Reply::Int(fence)) => Answer::Fence((*fence).try_into().unwrap()),
            (What::Acquire(..), Reply::Error(error)) if error.starts_with("DEADLOCK ") => {
                Answer::Deadlock
            }
            (What::Release | What::Renew, Reply::Int(done @ (0 | 1))) => Answer::Done(*done == 1),
            _ => panic!("{reply:?} to {what:?}"),
        }
    }
}
