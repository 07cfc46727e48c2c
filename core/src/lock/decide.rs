//! The decisions about a lock. A decision changes nothing: it returns an [`Effect`] or a refusal.

use super::effect::Effect;
use super::fence::{Fence, FenceClock};
use super::hold::{Hold, Mode, Since};
use super::state::Lock;
use super::time::{Deadline, Now, Ttl};
use super::token::Token;
use crate::planted::planted;

/// A request for a hold.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Exclusive, shared or counted.
    pub mode: Mode,
    /// The owner.
    pub token: Token<'a>,
    /// How long the hold lives, counted from the grant.
    pub ttl: Ttl,
}

/// The facts about the waiters of the same lock that a decision needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// Whether the request must wait, because of somebody who waits.
    pub any: bool,
    /// Whether another token has a hold and waits to make it exclusive.
    pub other_upgrades: bool,
}

/// A granted request. Its effect is to be applied and replicated.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// When it is granted.
    pub at: Now,
    /// Exclusive, shared or counted.
    pub mode: Mode,
    /// The hold, with its fence, which is the reply.
    pub hold: Hold,
    /// Whether the token already has a hold. Then it asked again, or for the other mode.
    pub had_it: bool,
}

impl Grant {
    /// A hold for a token that may have one already. It is not marked: that it lingers is for the
    /// caller to say.
    #[inline]
    pub fn new(own: Option<Hold>, mode: Mode, ttl: Ttl, fence: Fence, at: Now) -> Self {
        Self {
            at,
            mode,
            hold: Hold {
                fence: own.map_or(fence, |own| own.fence),
                deadline: Deadline::after(at, ttl),
                since: own.map_or_else(|| Since::at(at.ms()), |own| own.since.marked(false)),
            },
            had_it: own.is_some(),
        }
    }

    /// The same at another key, in its mode, of which the token has `own`.
    pub fn at_key(self, own: Option<Hold>, mode: Mode) -> Self {
        let mut grant = Self { mode, ..self };
        if let Some(own) = own {
            (grant.hold.fence, grant.hold.since) = (own.fence, own.since.marked(false));
            grant.had_it = true;
        }
        grant
    }

    /// The change of the lock, which gives the hold to its token.
    pub const fn effect<'a>(&self, token: Token<'a>) -> Effect<'a> {
        effect(self.at, self.mode, token, self.hold)
    }
}

const fn effect(now: Now, mode: Mode, token: Token<'_>, hold: Hold) -> Effect<'_> {
    Effect::Hold {
        now_ms: now.ms(),
        mode,
        token,
        hold,
    }
}

/// Why a request was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Others hold the lock, or wait for it. A request that may wait goes to the end of the queue.
    Busy,
    /// The token has a hold already, and there are more holders beside it than it tolerates now. A
    /// request that may wait goes ahead of the queue.
    BusyUpgrade,
    /// Another token already waits to make its hold exclusive, and so would this one: neither could
    /// ever proceed.
    Deadlock,
    /// No fence is left below 2^53.
    FencesExhausted,
    /// While it has waited, the longest ttl that may be has become shorter than its own.
    TtlTooLong,
}

impl Lock {
    /// Decides a request at `now`. `lock` is `None` if the key is absent.
    ///
    /// The request is idempotent by token. A holder that asks again keeps its fence and gets a new
    /// deadline. If it asks for another mode, its hold is converted. A new hold gets the next
    /// fence.
    ///
    /// # Errors
    /// A [`Refusal`]. Then nothing is to be changed.
    #[inline]
    pub fn acquire(
        lock: Option<&Self>,
        ask: Ask<'_>,
        now: Now,
        waiting: Waiting,
        fences: &mut FenceClock,
    ) -> Result<Grant, Refusal> {
        let own = match Self::admits(lock, ask.mode, ask.token, now) {
            Ok(None) if waiting.any && !planted("newcomers-pass") => return Err(Refusal::Busy),
            Ok(own) => own,
            Err(Refusal::BusyUpgrade) if ask.mode == Mode::Exclusive && waiting.other_upgrades => {
                return Err(Refusal::Deadlock);
            }
            Err(refusal) => return Err(refusal),
        };
        let fence = match own {
            Some(hold) => hold.fence,
            None => fences.next(now).ok_or(Refusal::FencesExhausted)?,
        };
        Ok(Grant::new(own, ask.mode, ask.ttl, fence, now))
    }

    /// Decides whether the holds at `now` admit a hold of `token` in this mode. Returns the hold
    /// that the token already has, in any mode.
    ///
    /// # Errors
    /// [`Refusal::Busy`] or [`Refusal::BusyUpgrade`].
    #[inline]
    pub fn admits(
        lock: Option<&Self>,
        mode: Mode,
        token: Token<'_>,
        now: Now,
    ) -> Result<Option<Hold>, Refusal> {
        let Some(lock) = lock else {
            return Ok(None);
        };
        let fits = |own: Mode| match mode {
            _ if mode.tolerates() >= own.tolerates() => true,
            Mode::Exclusive => !lock.is_held_by_others(token, now),
            Mode::Shared => true,
            Mode::Counted(limit) => {
                let most = usize::try_from(limit.get()).unwrap_or(usize::MAX);
                lock.occupancy(now).holders <= most
            }
        };
        match lock.hold_of(token, now) {
            Some((own, hold)) if fits(own) => Ok(Some(hold)),
            Some(_) => Err(Refusal::BusyUpgrade),
            None if lock.excludes(mode, now) => Err(Refusal::Busy),
            None => Ok(None),
        }
    }

    /// Decides the end of a token's hold, and returns that hold. `None` if the token holds nothing.
    #[inline]
    pub fn release<'a>(&self, token: Token<'a>, now: Now) -> Option<(Effect<'a>, Hold)> {
        if planted("anybody-releases") {
            let now_ms = now.ms().saturating_add(Ttl::MAX_MS); // Every hold is over by then.
            let (.., hold) = self.holds().pop()?;
            return Some((Effect::Release { now_ms, token }, hold));
        }
        let (_, hold) = self.hold_of(token, now)?;
        let effect = Effect::Release {
            now_ms: now.ms(),
            token,
        };
        Some((effect, hold))
    }

    /// Decides the end of a token's hold, but not before `at_least_ms` after its first grant: until
    /// then only its deadline comes forward, and never beyond that of the key. `None` if the token
    /// holds nothing. The second value is the hold if it ends now.
    pub fn release_at_least<'a>(
        &self,
        token: Token<'a>,
        at_least_ms: u64,
        key_deadline: Option<Deadline>,
        now: Now,
    ) -> Option<(Effect<'a>, Option<Hold>)> {
        let (_, hold) = self.hold_of(token, now)?;
        let until_ms = hold.since.ms().saturating_add(at_least_ms);
        let until = Deadline::from_millis(until_ms.min(Deadline::MAX_MS));
        let Some(until) = until.filter(|_| now.ms() < until_ms) else {
            let (effect, hold) = self.release(token, now)?;
            return Some((effect, Some(hold)));
        };
        let until = until.min(hold.deadline);
        Some((self.shorten(token, until, key_deadline, now)?, None))
    }

    /// Decides an earlier deadline for a token's hold, never beyond that of the key. `None` if the
    /// token holds nothing.
    pub fn shorten<'a>(
        &self,
        token: Token<'a>,
        until: Deadline,
        key_deadline: Option<Deadline>,
        now: Now,
    ) -> Option<Effect<'a>> {
        let deadline = key_deadline.map_or(until, |key| key.min(until));
        self.set_deadline(token, deadline, now)
    }

    /// Decides a new deadline for a token's hold. `None` if the token holds nothing: a lost lock is
    /// never taken again.
    pub fn renew<'a>(&self, token: Token<'a>, ttl: Ttl, now: Now) -> Option<Effect<'a>> {
        self.set_deadline(token, Deadline::after(now, ttl), now)
    }

    fn set_deadline<'a>(
        &self,
        token: Token<'a>,
        deadline: Deadline,
        now: Now,
    ) -> Option<Effect<'a>> {
        let (mode, hold) = self.hold_of(token, now)?;
        let hold = Hold { deadline, ..hold };
        Some(effect(now, mode, token, hold))
    }

    /// The effect that brings the holds in line with the deadline of their key. `None` if no hold
    /// lasts longer than the key.
    ///
    /// A hold ends at its deadline or with its key, whichever is first, and an `EXPIRE` from
    /// outside can bring the key's end forward. While nothing is written, the server's own expiry
    /// ends the holds in time. A write sets the key's ttl anew, so the holds have to be shortened
    /// before it.
    pub fn cap(&self, key_deadline: Deadline) -> Option<Effect<'static>> {
        let later = self
            .latest_deadline()
            .is_some_and(|latest| latest > key_deadline);
        later.then_some(Effect::Cap {
            deadline: key_deadline,
        })
    }

    /// Whether the holds at `now` exclude a token that has none of them.
    #[inline]
    fn excludes(&self, mode: Mode, now: Now) -> bool {
        match (self.mode(), mode) {
            (Mode::Shared, Mode::Exclusive) if planted("writers-beside-readers") => false,
            // The usual cases need no count.
            (Mode::Exclusive, _) | (_, Mode::Exclusive) => !self.is_free(now),
            (Mode::Shared, Mode::Shared) => false,
            _ => !self.occupancy(now).admits(mode),
        }
    }
}
