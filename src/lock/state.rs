//! A held lock in memory: its storage, the queries about it, and the changes that effects make.

use std::borrow::Cow;
use std::mem::size_of;

use super::compact::{CompactToken, TokenText};
use super::fence::{Fence, MarkedFence};
use super::hold::{Hold, Mode};
use super::shared::SharedHolds;
use super::time::{Deadline, Now};
use super::token::Token;

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    holds: Holds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Holds {
    /// One hold, of either mode. Most locks never have more.
    One(OneHold),
    /// Two shared holds or more. There are fewer only between the steps of one effect.
    Many(Box<SharedHolds>),
}

/// The only hold of a lock. There is no padding between its fields, so a lock takes 48 bytes, which
/// is a size class of common allocators.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OneHold {
    /// Marked if the hold is shared.
    fence: MarkedFence,
    deadline: Deadline,
    since_ms: u64,
    token: CompactToken,
}

const _: () = assert!(size_of::<Lock>() == 48);

impl OneHold {
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

/// The state of a lock after an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fate {
    /// Somebody holds it.
    Held,
    /// Nobody holds it. The value must not be used any more, and its key is to be deleted.
    Free,
}

impl Fate {
    const fn free_if(free: bool) -> Self {
        if free {
            Self::Free
        } else {
            Self::Held
        }
    }
}

/// The queries.
impl Lock {
    /// The token's mode and hold at `now`, if it has one.
    pub fn hold_of(&self, token: Token<'_>, now: Now) -> Option<(Mode, Hold)> {
        let (mode, hold) = match &self.holds {
            Holds::One(one) if one.token.is(token) => (one.mode(), one.hold()),
            Holds::One(_) => return None,
            Holds::Many(shared) => (Mode::Shared, *shared.get(token)?),
        };
        (!hold.deadline.is_over(now.ms())).then_some((mode, hold))
    }

    /// The fence of the token's hold, if it has one. The hold may be over.
    pub fn fence_of(&self, token: Token<'_>) -> Option<Fence> {
        match &self.holds {
            Holds::One(one) => one.token.is(token).then(|| one.hold().fence),
            Holds::Many(shared) => shared.get(token).map(|hold| hold.fence),
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
            Holds::One(one) => one.mode(),
            Holds::Many(_) => Mode::Shared,
        }
    }

    /// When the last hold ends by itself, which is the deadline of the key. `None` only if there is
    /// no hold at all.
    pub fn latest_deadline(&self) -> Option<Deadline> {
        match &self.holds {
            Holds::One(one) => Some(one.deadline),
            Holds::Many(shared) => shared.latest_deadline(),
        }
    }

    /// When the last hold of another token ends by itself, if there is one.
    pub fn latest_deadline_of_others(&self, token: Token<'_>) -> Option<Deadline> {
        match &self.holds {
            Holds::One(one) if one.token.is(token) => None,
            Holds::One(one) => Some(one.deadline),
            Holds::Many(shared) => shared.latest_deadline_of_others(token),
        }
    }

    /// The number of holds. It includes holds that are over and not dropped yet.
    pub fn len(&self) -> usize {
        match &self.holds {
            Holds::One(_) => 1,
            Holds::Many(shared) => shared.len(),
        }
    }

    /// Whether there is no hold at all. This is never so between effects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All holds in the order of their fences, which is the order of their grants. `O(n log n)`.
    pub fn holders(&self) -> Vec<(TokenText<'_>, Hold)> {
        match &self.holds {
            Holds::One(one) => vec![(one.token.text(), one.hold())],
            Holds::Many(shared) => {
                let mut holders: Vec<_> = shared.iter().collect();
                holders.sort_unstable_by_key(|(token, hold)| (hold.fence, *token));
                let holders = holders.into_iter();
                holders
                    .map(|(token, hold)| (TokenText::Stored(token), hold))
                    .collect()
            }
        }
    }

    /// Each hold that lives at `now` with its mode, in no order. A stored token is not copied.
    pub fn live_holders(&self, now: Now) -> impl Iterator<Item = (Cow<'_, CompactToken>, Mode)> {
        let (one, many) = match &self.holds {
            Holds::One(one) => (Some(one), None),
            Holds::Many(shared) => (None, Some(shared)),
        };
        let is_alive = move |deadline: Deadline| !deadline.is_over(now.ms());
        let one = one.into_iter().filter(move |one| is_alive(one.deadline));
        let one = one.map(|one| (Cow::Borrowed(&one.token), one.mode()));
        let many = many.into_iter().flat_map(|shared| shared.iter());
        let many = many.filter(move |(_, hold)| is_alive(hold.deadline));
        one.chain(many.map(|(token, _)| (Cow::Owned(CompactToken::from(token)), Mode::Shared)))
    }

    /// An estimate of the memory of the lock in bytes. It does not iterate over the holds.
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.holds {
            Holds::One(one) => one.token.heap_bytes(),
            Holds::Many(shared) => shared.heap_bytes().saturating_add(size_of::<SharedHolds>()),
        };
        heap.saturating_add(size_of::<Self>())
    }
}

/// The changes. Only [`Effect`](super::Effect) makes them.
impl Lock {
    pub(super) fn new(mode: Mode, token: Token<'_>, hold: Hold) -> Self {
        Self {
            holds: Holds::One(OneHold::new(mode, token.into(), hold)),
        }
    }

    /// Gives `token` this hold. A shared hold joins the shared holds of other tokens. In all other
    /// cases the new hold replaces all holds.
    pub(super) fn put(&mut self, mode: Mode, token: Token<'_>, hold: Hold) {
        match (&mut self.holds, mode) {
            (Holds::One(one), _) if one.token.is(token) => one.set(mode, hold),
            (Holds::One(one), Mode::Shared) if one.mode() == Mode::Shared => {
                let mut shared = Box::<SharedHolds>::default();
                shared.put(one.token.text().as_token(), one.hold());
                shared.put(token, hold);
                self.holds = Holds::Many(shared);
            }
            (Holds::Many(shared), Mode::Shared) => shared.put(token, hold),
            _ => *self = Self::new(mode, token, hold),
        }
    }

    pub(super) fn remove(&mut self, token: Token<'_>) -> Fate {
        match &mut self.holds {
            Holds::One(one) => Fate::free_if(one.token.is(token)),
            Holds::Many(shared) => {
                shared.remove(token);
                self.shrink()
            }
        }
    }

    pub(super) fn purge(&mut self, now_ms: u64) -> Fate {
        match &mut self.holds {
            Holds::One(one) => Fate::free_if(one.deadline.is_over(now_ms)),
            Holds::Many(shared) => {
                shared.purge(now_ms);
                self.shrink()
            }
        }
    }

    /// Stores a last remaining hold as [`Holds::One`], so that equal locks have one representation.
    fn shrink(&mut self) -> Fate {
        if let Holds::Many(shared) = &mut self.holds {
            if shared.len() > 1 {
                return Fate::Held;
            }
            let Some((token, hold)) = shared.take_first() else {
                return Fate::Free;
            };
            self.holds = Holds::One(OneHold::new(Mode::Shared, token.as_token().into(), hold));
        }
        Fate::Held
    }

    pub(super) fn cap_deadlines(&mut self, cap: Deadline) {
        match &mut self.holds {
            Holds::One(one) => one.deadline = one.deadline.min(cap),
            Holds::Many(shared) => shared.cap(cap),
        }
    }
}
