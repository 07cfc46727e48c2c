//! The lock while it is held, and the decisions about it.

use std::mem::size_of;

use super::compact::{CompactToken, TokenText};
use super::effect::{Effect, Fate};
use super::fence::{Fence, FenceClock, MarkedFence};
use super::readers::Readers;
use super::time::{Deadline, Now, Ttl};
use super::token::Token;

/// How a hold relates to others on the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Alone: the writer's hold, or the mutex's.
    Exclusive,
    /// Beside other shared holds: the reader's.
    Shared,
}

impl Mode {
    /// The mode's name as a user reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// What one token has of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Given with the hold; kept when it is renewed, taken again or converted.
    pub fence: Fence,
    /// When it ends by itself.
    pub deadline: Deadline,
    /// When it was granted first, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

/// A request for a hold.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Exclusive or shared.
    pub mode: Mode,
    /// For whom.
    pub token: Token<'a>,
    /// For how long, counted from the grant.
    pub ttl: Ttl,
}

/// What a decision needs to know of those who wait for the same lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting<'a> {
    /// Somebody waits, so nobody new may pass.
    pub any: bool,
    /// The token that holds a share and waits for the others to end, to become exclusive.
    pub upgrading: Option<Token<'a>>,
}

/// A request that was granted: what is to be applied and replicated.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The change.
    pub effect: Effect<'a>,
    /// The hold's fence: the reply.
    pub fence: Fence,
    /// The hold.
    pub hold: Hold,
    /// Whether the token has the hold already: it asks again, or for the other mode.
    pub had_it: bool,
}

/// Why a request was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Others hold it, or wait for it. Who may wait stands behind them.
    Busy,
    /// The token's own share stands, but others hold shares too. Who may wait stands before the queue.
    BusyUpgrade,
    /// Another token already waits to convert its share: neither could ever proceed.
    Deadlock,
    /// No fence is left below 2^53.
    FencesExhausted,
}

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    holds: Holds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Holds {
    /// One hold, of either mode: most locks are never anything else.
    Sole(Sole),
    /// Two shared holds or more; fewer only for the moment between the parts of one effect.
    Crowd(Box<Readers>),
}

/// An only hold. With nothing to spare between its parts, so that a lock takes 48 bytes, which is a size that allocators have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sole {
    /// Marked when the hold is shared.
    fence: MarkedFence,
    deadline: Deadline,
    since_ms: u64,
    token: CompactToken,
}

const _: () = assert!(size_of::<Lock>() == 48);

impl Sole {
    fn new(mode: Mode, token: CompactToken, hold: Hold) -> Self {
        Self {
            fence: MarkedFence::new(hold.fence, mode == Mode::Shared),
            deadline: hold.deadline,
            since_ms: hold.since_ms,
            token,
        }
    }

    const fn mode(&self) -> Mode {
        if self.fence.is_marked() {
            Mode::Shared
        } else {
            Mode::Exclusive
        }
    }

    const fn hold(&self) -> Hold {
        Hold {
            fence: self.fence.fence(),
            deadline: self.deadline,
            since_ms: self.since_ms,
        }
    }

    fn set(&mut self, mode: Mode, hold: Hold) {
        self.fence = MarkedFence::new(hold.fence, mode == Mode::Shared);
        self.deadline = hold.deadline;
        self.since_ms = hold.since_ms;
    }
}

/// The decisions. They change nothing.
impl Lock {
    /// Decides a request at `now`; `lock` is `None` when the key is absent.
    ///
    /// Idempotent by token: the holder that asks again in the same mode keeps its fence and gets a new deadline, and in the
    /// other mode it is converted. A new hold gets the next fence.
    ///
    /// # Errors
    /// A [`Refusal`]: nothing is to be changed.
    pub fn acquire<'a>(
        lock: Option<&Self>,
        ask: Ask<'a>,
        now: Now,
        waiting: Waiting<'_>,
        fences: &mut FenceClock,
    ) -> Result<Grant<'a>, Refusal> {
        let own = match Self::admits(lock, ask.mode, ask.token, now) {
            Ok(None) if waiting.any => return Err(Refusal::Busy),
            Ok(own) => own,
            Err(Refusal::BusyUpgrade) if waiting.upgrading.is_some_and(|t| t != ask.token) => {
                return Err(Refusal::Deadlock);
            }
            Err(refusal) => return Err(refusal),
        };
        let hold = match own {
            Some(hold) => Hold {
                deadline: Deadline::after(now, ask.ttl),
                ..hold
            },
            None => Hold {
                fence: fences.next(now).map_err(|_| Refusal::FencesExhausted)?,
                deadline: Deadline::after(now, ask.ttl),
                since_ms: now.ms(),
            },
        };
        let effect = Effect::Hold {
            now_ms: now.ms(),
            mode: ask.mode,
            token: ask.token,
            hold,
        };
        Ok(Grant {
            effect,
            fence: hold.fence,
            hold,
            had_it: own.is_some(),
        })
    }

    /// Whether the holds at `now` let a token have one in this mode; if it has one already, in any mode, that one.
    ///
    /// # Errors
    /// [`Refusal::Busy`] or [`Refusal::BusyUpgrade`].
    pub fn admits(
        lock: Option<&Self>,
        mode: Mode,
        token: Token<'_>,
        now: Now,
    ) -> Result<Option<Hold>, Refusal> {
        let Some(lock) = lock else {
            return Ok(None);
        };
        match lock.hold_of(token, now) {
            Some((Mode::Shared, _))
                if mode == Mode::Exclusive && lock.is_held_by_others(token, now) =>
            {
                Err(Refusal::BusyUpgrade)
            }
            Some((_, hold)) => Ok(Some(hold)),
            None if lock.excludes(mode, now) => Err(Refusal::Busy),
            None => Ok(None),
        }
    }

    /// Decides the end of a token's hold, and says what ends: `None` when it holds nothing.
    pub fn release<'a>(&self, token: Token<'a>, now: Now) -> Option<(Effect<'a>, Hold)> {
        let (_, hold) = self.hold_of(token, now)?;
        let effect = Effect::Release {
            now_ms: now.ms(),
            token,
        };
        Some((effect, hold))
    }

    /// Decides a new deadline for a token's hold: `None` when it holds nothing, for a lost lock is never taken again.
    pub fn renew<'a>(&self, token: Token<'a>, ttl: Ttl, now: Now) -> Option<Effect<'a>> {
        let (mode, hold) = self.hold_of(token, now)?;
        Some(Effect::Hold {
            now_ms: now.ms(),
            mode,
            token,
            hold: Hold {
                deadline: Deadline::after(now, ttl),
                ..hold
            },
        })
    }

    /// The deadline that an `EXPIRE` from outside has brought down: the effect that makes the holds agree with it.
    ///
    /// A hold ends at its deadline or with its key, whichever is first. As long as nothing is written the key's own ttl sees
    /// to that; before something is written, which sets that ttl anew, the holds must learn of it.
    pub fn cap(&self, key_deadline: Deadline) -> Option<Effect<'static>> {
        let later = self
            .latest_deadline()
            .is_some_and(|latest| latest > key_deadline);
        later.then_some(Effect::Cap {
            deadline: key_deadline,
        })
    }
}

/// Questions.
impl Lock {
    /// The token's hold at `now`, if it has one.
    pub fn hold_of(&self, token: Token<'_>, now: Now) -> Option<(Mode, Hold)> {
        let (mode, hold) = match &self.holds {
            Holds::Sole(sole) if sole.token.is(token) => (sole.mode(), sole.hold()),
            Holds::Sole(_) => return None,
            Holds::Crowd(readers) => (Mode::Shared, *readers.get(token)?),
        };
        (!hold.deadline.is_over(now.ms())).then_some((mode, hold))
    }

    /// The fence of the token's hold, if it has one, over or not.
    pub fn fence_of(&self, token: Token<'_>) -> Option<Fence> {
        match &self.holds {
            Holds::Sole(sole) => sole.token.is(token).then(|| sole.hold().fence),
            Holds::Crowd(readers) => readers.get(token).map(|hold| hold.fence),
        }
    }

    /// Whether any other token has a hold at `now`.
    pub fn is_held_by_others(&self, token: Token<'_>, now: Now) -> bool {
        self.latest_deadline_of_others(token)
            .is_some_and(|deadline| !deadline.is_over(now.ms()))
    }

    /// Whether no hold is left at `now`.
    pub fn is_free(&self, now: Now) -> bool {
        self.latest_deadline()
            .is_none_or(|deadline| deadline.is_over(now.ms()))
    }

    /// Exclusive or shared.
    pub const fn mode(&self) -> Mode {
        match &self.holds {
            Holds::Sole(sole) => sole.mode(),
            Holds::Crowd(_) => Mode::Shared,
        }
    }

    /// When the last hold ends by itself: the deadline of the key. `None` only of a lock that is free.
    pub fn latest_deadline(&self) -> Option<Deadline> {
        match &self.holds {
            Holds::Sole(sole) => Some(sole.deadline),
            Holds::Crowd(readers) => readers.latest_deadline(),
        }
    }

    /// When the last hold of another token ends by itself, if there is one.
    pub fn latest_deadline_of_others(&self, token: Token<'_>) -> Option<Deadline> {
        match &self.holds {
            Holds::Sole(sole) if sole.token.is(token) => None,
            Holds::Sole(sole) => Some(sole.deadline),
            Holds::Crowd(readers) => readers.latest_deadline_of_others(token),
        }
    }

    /// How many holds there are, those included that are over and not dropped yet.
    pub fn len(&self) -> usize {
        match &self.holds {
            Holds::Sole(_) => 1,
            Holds::Crowd(readers) => readers.len(),
        }
    }

    /// Whether there is no hold at all. Never so between effects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All holds in the order of their fences, which is the order in which they were granted. `O(n log n)`.
    pub fn holders(&self) -> Vec<(TokenText<'_>, Hold)> {
        match &self.holds {
            Holds::Sole(sole) => vec![(sole.token.text(), sole.hold())],
            Holds::Crowd(readers) => {
                let mut holders: Vec<_> = readers.iter().collect();
                holders.sort_unstable_by_key(|(token, hold)| (hold.fence, *token));
                let holders = holders.into_iter();
                holders
                    .map(|(token, hold)| (TokenText::Kept(token), hold))
                    .collect()
            }
        }
    }

    /// An estimate of the bytes that the lock takes, made without walking its holds.
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.holds {
            Holds::Sole(sole) => sole.token.heap_bytes(),
            Holds::Crowd(readers) => readers.heap_bytes().saturating_add(size_of::<Readers>()),
        };
        heap.saturating_add(size_of::<Self>())
    }

    /// Whether the holds at `now` keep a token out that has none of them.
    fn excludes(&self, mode: Mode, now: Now) -> bool {
        !self.is_free(now) && (self.mode() == Mode::Exclusive || mode == Mode::Exclusive)
    }
}

/// The changes. Only [`Effect`] makes them.
impl Lock {
    pub(super) fn new(mode: Mode, token: Token<'_>, hold: Hold) -> Self {
        Self {
            holds: Holds::Sole(Sole::new(mode, token.into(), hold)),
        }
    }

    /// Gives `token` this hold, beside the shared ones that stand if it is shared too, else in place of all.
    pub(super) fn put(&mut self, mode: Mode, token: Token<'_>, hold: Hold) {
        match (&mut self.holds, mode) {
            (Holds::Sole(sole), _) if sole.token.is(token) => sole.set(mode, hold),
            (Holds::Sole(sole), Mode::Shared) if sole.mode() == Mode::Shared => {
                let mut readers = Box::<Readers>::default();
                readers.put(sole.token.text().as_token(), sole.hold());
                readers.put(token, hold);
                self.holds = Holds::Crowd(readers);
            }
            (Holds::Crowd(readers), Mode::Shared) => readers.put(token, hold),
            _ => *self = Self::new(mode, token, hold),
        }
    }

    pub(super) fn remove(&mut self, token: Token<'_>) -> Fate {
        match &mut self.holds {
            Holds::Sole(sole) => Fate::free_if(sole.token.is(token)),
            Holds::Crowd(readers) => {
                readers.remove(token);
                self.shrink()
            }
        }
    }

    pub(super) fn purge(&mut self, now_ms: u64) -> Fate {
        match &mut self.holds {
            Holds::Sole(sole) => Fate::free_if(sole.deadline.is_over(now_ms)),
            Holds::Crowd(readers) => {
                readers.purge(now_ms);
                self.shrink()
            }
        }
    }

    /// Keeps a crowd only as long as it is one: equal locks are built alike.
    fn shrink(&mut self) -> Fate {
        if let Holds::Crowd(readers) = &mut self.holds {
            if readers.len() > 1 {
                return Fate::Held;
            }
            let Some((token, hold)) = readers.take_any() else {
                return Fate::Free;
            };
            self.holds = Holds::Sole(Sole::new(Mode::Shared, token.as_token().into(), hold));
        }
        Fate::Held
    }

    pub(super) fn cap_deadlines(&mut self, cap: Deadline) {
        match &mut self.holds {
            Holds::Sole(sole) => sole.deadline = sole.deadline.min(cap),
            Holds::Crowd(readers) => readers.cap(cap),
        }
    }
}
