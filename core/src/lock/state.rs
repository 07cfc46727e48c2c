//! A held lock in memory: its storage, the queries about it, and the changes that effects make.

use std::borrow::Cow;
use std::mem::size_of;

use super::compact::{CompactToken, TokenText};
use super::fence::{Fence, MarkedFence};
use super::hold::{Hold, Limit, Mode, Occupancy, Since};
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
    /// One hold, exclusive or shared. Most locks never have more.
    One(OneHold),
    /// One counted hold.
    Counted(Box<CountedHold>),
    /// Two holds or more, shared or counted. There are fewer only between the steps of one effect.
    Many(Box<SharedHolds>),
}

/// The only hold of a lock, with a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CountedHold {
    limit: Limit,
    token: CompactToken,
    hold: Hold,
}

/// The only hold of a lock. There is no padding between its fields, so a lock takes 48 bytes, which
/// is a size class of common allocators.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OneHold {
    /// Marked if the hold is shared.
    fence: MarkedFence,
    deadline: Deadline,
    since: Since,
    token: CompactToken,
}

const _: () = assert!(size_of::<Lock>() == 48);

impl OneHold {
    fn new(mode: Mode, token: CompactToken, hold: Hold) -> Self {
        Self {
            fence: MarkedFence::new(hold.fence, mode == Mode::Shared),
            deadline: hold.deadline,
            since: hold.since,
            token,
        }
    }

    #[inline]
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
            since: self.since,
        }
    }

    fn set(&mut self, mode: Mode, hold: Hold) {
        self.fence = MarkedFence::new(hold.fence, mode == Mode::Shared);
        self.deadline = hold.deadline;
        self.since = hold.since;
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
    #[inline]
    pub fn hold_of(&self, token: Token<'_>, now: Now) -> Option<(Mode, Hold)> {
        let (mode, hold) = self.stored(token)?;
        (!hold.deadline.is_over(now.ms())).then_some((mode, hold))
    }

    /// The fence of the token's hold, if it has one. The hold may be over.
    pub fn fence_of(&self, token: Token<'_>) -> Option<Fence> {
        self.stored(token).map(|(_, hold)| hold.fence)
    }

    /// The token's hold, if it has one. It may be over.
    #[inline]
    pub fn stored(&self, token: Token<'_>) -> Option<(Mode, Hold)> {
        match &self.holds {
            Holds::One(one) => one.token.is(token).then(|| (one.mode(), one.hold())),
            Holds::Counted(one) => one
                .token
                .is(token)
                .then_some((Mode::Counted(one.limit), one.hold)),
            Holds::Many(many) => many.get(token),
        }
    }

    /// The fences of the holds that are over at `now`, and are not dropped yet.
    pub fn ended(&self, now: Now) -> impl Iterator<Item = Fence> + '_ {
        let (one, many) = match &self.holds {
            Holds::One(one) => (Some(one.hold()), None),
            Holds::Counted(one) => (Some(one.hold), None),
            Holds::Many(many) => (None, Some(many)),
        };
        let one = one.filter(|hold| hold.deadline.is_over(now.ms()));
        let many = many.into_iter().flat_map(move |many| many.ended(now.ms()));
        one.map(|hold| hold.fence).into_iter().chain(many)
    }

    /// Whose hold is over at `now`, where those of more than `many` tokens are and were not dropped
    /// yet: a look at the lock takes the longer the more there are.
    #[inline]
    pub fn one_of_many_ended(&self, many: usize, now: Now) -> Option<Token<'_>> {
        match &self.holds {
            Holds::Many(holds) => holds.ended_token(many, now.ms()),
            Holds::One(_) | Holds::Counted(_) => None,
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

    /// Exclusive or shared; counted, with the smallest limit, where some hold has one. Holds that
    /// are over count as well.
    #[inline]
    pub fn mode(&self) -> Mode {
        match &self.holds {
            Holds::One(one) => one.mode(),
            Holds::Counted(one) => Mode::Counted(one.limit),
            Holds::Many(many) => many.smallest_limit().map_or(Mode::Shared, Mode::Counted),
        }
    }

    /// How many hold it at `now`, and how many holders they tolerate.
    pub fn occupancy(&self, now: Now) -> Occupancy {
        if let Holds::Many(many) = &self.holds {
            return many.occupancy(now.ms());
        }
        let mut occupancy = Occupancy::NONE;
        if !self.is_free(now) {
            occupancy.add(self.mode());
        }
        occupancy
    }

    /// When the last hold ends by itself, which is the deadline of the key. `None` only if there is
    /// no hold at all.
    #[inline]
    pub fn latest_deadline(&self) -> Option<Deadline> {
        match &self.holds {
            Holds::One(one) => Some(one.deadline),
            Holds::Counted(one) => Some(one.hold.deadline),
            Holds::Many(many) => many.latest_deadline(),
        }
    }

    /// When the first of the holds that live at `now` ends by itself.
    pub fn earliest_deadline(&self, now: Now) -> Option<Deadline> {
        match &self.holds {
            Holds::Many(many) => many.earliest_deadline(now.ms()),
            Holds::One(_) | Holds::Counted(_) => self
                .latest_deadline()
                .filter(|deadline| !deadline.is_over(now.ms())),
        }
    }

    /// When the last hold of another token ends by itself, if there is one.
    pub fn latest_deadline_of_others(&self, token: Token<'_>) -> Option<Deadline> {
        let (is_own, deadline) = match &self.holds {
            Holds::One(one) => (one.token.is(token), one.deadline),
            Holds::Counted(one) => (one.token.is(token), one.hold.deadline),
            Holds::Many(many) => return many.latest_deadline_of_others(token),
        };
        (!is_own).then_some(deadline)
    }

    /// The number of holds. It includes holds that are over and not dropped yet.
    pub fn len(&self) -> usize {
        match &self.holds {
            Holds::One(_) | Holds::Counted(_) => 1,
            Holds::Many(many) => many.len(),
        }
    }

    /// Whether there is no hold at all. This is never so between effects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All holds in the order of their fences, which is the order of their grants. `O(n log n)`.
    pub fn holders(&self) -> Vec<(TokenText<'_>, Hold)> {
        let holds = self.holds().into_iter();
        holds.map(|(token, _, hold)| (token, hold)).collect()
    }

    /// The same, each with its mode.
    pub fn holds(&self) -> Vec<(TokenText<'_>, Mode, Hold)> {
        self.first_holds(usize::MAX, |_| true)
    }

    /// The first `most` of the holds that live at `now`, in the same order. `O(n)` for few of them.
    pub fn first_live_holds(&self, most: usize, now: Now) -> Vec<(TokenText<'_>, Mode, Hold)> {
        self.first_holds(most, |deadline| !deadline.is_over(now.ms()))
    }

    fn first_holds(
        &self,
        most: usize,
        is_wanted: impl Fn(Deadline) -> bool,
    ) -> Vec<(TokenText<'_>, Mode, Hold)> {
        let one = match &self.holds {
            Holds::One(one) => (one.token.text(), one.mode(), one.hold()),
            Holds::Counted(one) => (one.token.text(), Mode::Counted(one.limit), one.hold),
            Holds::Many(many) => {
                let first = many.first(most, is_wanted).into_iter();
                let first = first.map(|(token, mode, hold)| (TokenText::Stored(token), mode, hold));
                return first.collect();
            }
        };
        let one = Some(one).filter(|(.., hold)| most > 0 && is_wanted(hold.deadline));
        one.into_iter().collect()
    }

    /// Each hold that lives at `now` with its mode, in no order. A stored token is not copied.
    pub fn live_holders(&self, now: Now) -> impl Iterator<Item = (Cow<'_, CompactToken>, Mode)> {
        let (one, many) = match &self.holds {
            Holds::One(one) => (Some((&one.token, one.mode(), one.deadline)), None),
            Holds::Counted(one) => {
                let (mode, deadline) = (Mode::Counted(one.limit), one.hold.deadline);
                (Some((&one.token, mode, deadline)), None)
            }
            Holds::Many(many) => (None, Some(many)),
        };
        let one = one.into_iter();
        let one = one.map(|(token, mode, deadline)| (Cow::Borrowed(token), mode, deadline));
        let many = many.into_iter().flat_map(|many| many.iter());
        let many = many.map(|(token, mode, hold)| {
            let token = CompactToken::from(token);
            (Cow::Owned(token), mode, hold.deadline)
        });
        let all = one.chain(many);
        let alive = all.filter(move |(_, _, deadline)| !deadline.is_over(now.ms()));
        alive.map(|(token, mode, _)| (token, mode))
    }

    /// An estimate of the memory of the lock in bytes. It does not iterate over the holds.
    pub fn memory_bytes(&self) -> usize {
        let heap = match &self.holds {
            Holds::One(one) => one.token.heap_bytes(),
            Holds::Counted(one) => {
                let heap = one.token.heap_bytes();
                heap.saturating_add(size_of::<CountedHold>())
            }
            Holds::Many(many) => many.heap_bytes().saturating_add(size_of::<SharedHolds>()),
        };
        heap.saturating_add(size_of::<Self>())
    }
}

/// The changes. Only [`Effect`](super::Effect) makes them.
impl Lock {
    pub(super) fn new(mode: Mode, token: Token<'_>, hold: Hold) -> Self {
        let token = token.into();
        let holds = match mode {
            Mode::Counted(limit) => Holds::Counted(Box::new(CountedHold { limit, token, hold })),
            Mode::Exclusive | Mode::Shared => Holds::One(OneHold::new(mode, token, hold)),
        };
        Self { holds }
    }

    /// Gives `token` this hold. It joins the holds of other tokens if all of them tolerate that. In
    /// all other cases the new hold replaces all holds.
    pub(super) fn put(&mut self, mode: Mode, token: Token<'_>, hold: Hold) {
        let is_own = match &mut self.holds {
            Holds::One(one) if one.token.is(token) && mode.limit().is_none() => {
                return one.set(mode, hold);
            }
            Holds::Many(many) => {
                if many.set(mode, token, hold) {
                    return;
                }
                many.remove(token);
                false
            }
            Holds::One(one) => one.token.is(token),
            Holds::Counted(one) => one.token.is(token),
        };
        if is_own || !self.stored_occupancy().admits(mode) {
            *self = Self::new(mode, token, hold);
            return;
        }
        if !matches!(self.holds, Holds::Many(_)) {
            let mut many = Box::<SharedHolds>::default();
            for (token, mode, hold) in self.holds() {
                many.put(mode, token.as_token(), hold);
            }
            self.holds = Holds::Many(many);
        }
        if let Holds::Many(many) = &mut self.holds {
            many.put(mode, token, hold);
        }
    }

    /// How many holds there are, and how many they tolerate. Those that are over count as well.
    fn stored_occupancy(&self) -> Occupancy {
        Occupancy {
            holders: self.len(),
            tolerated: self.mode().tolerates(),
        }
    }

    pub(super) fn remove(&mut self, token: Token<'_>) -> Fate {
        match &mut self.holds {
            Holds::Many(many) => {
                many.remove(token);
                self.shrink()
            }
            Holds::One(_) | Holds::Counted(_) => Fate::free_if(self.stored(token).is_some()),
        }
    }

    pub(super) fn purge(&mut self, now_ms: u64) -> Fate {
        match &mut self.holds {
            Holds::One(one) => Fate::free_if(one.deadline.is_over(now_ms)),
            Holds::Counted(one) => Fate::free_if(one.hold.deadline.is_over(now_ms)),
            Holds::Many(many) => {
                many.purge(now_ms);
                self.shrink()
            }
        }
    }

    /// Stores a last remaining hold by itself, so that equal locks have one representation.
    fn shrink(&mut self) -> Fate {
        if let Holds::Many(many) = &mut self.holds {
            if many.len() > 1 {
                return Fate::Held;
            }
            let Some((token, mode, hold)) = many.take_first() else {
                return Fate::Free;
            };
            *self = Self::new(mode, token.as_token(), hold);
        }
        Fate::Held
    }

    pub(super) fn cap_deadlines(&mut self, cap: Deadline) {
        match &mut self.holds {
            Holds::One(one) => one.deadline = one.deadline.min(cap),
            Holds::Counted(one) => one.hold.deadline = one.hold.deadline.min(cap),
            Holds::Many(many) => many.cap(cap),
        }
    }
}
