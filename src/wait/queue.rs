//! The order of the places of one key. The queue lives beside the lock, on the server that serves the
//! listeners. It is never persisted or replicated.
//!
//! # The order
//!
//! - Readers and writers share one line, in the order of their tickets. Nobody passes a place whose turn
//!   has not come. So a reader never passes a writer, and nobody starves. Consecutive readers at the head
//!   enter one after the other in the same moment.
//! - The turn of an *absent* place comes as that of any other. It then counts as a holder of its mode. So
//!   an absent writer stops all behind it, and an absent reader stops writers only. Absent readers at the
//!   head are skipped by `stops`, so a long run of them costs nothing.
//! - A token *upgrades* when it holds a share and waits to become exclusive. Its place stands ahead of the
//!   line, because nobody in the line could enter before that share ends. When the share ends first, the
//!   token is a writer like any other, and its place keeps its ticket.
//! - A place becomes an upgrade in the step in which its token gets a share. Otherwise it would wait
//!   behind a writer who waits for that share to end.
//! - Only one token upgrades at a time. A second one would wait for the first, and the first for it. So
//!   the second request is refused: [`Refusal::Deadlock`](crate::lock::Refusal) or [`Next::Deadlock`].
//! - All requests of a place have one owner. When one is granted, the others are granted too, unless
//!   other holders keep them out.
//! - A place for several keys stops all behind it, also when it is absent. The queue only says that it is
//!   its turn here ([`Next::Several`]). It never upgrades, because its token holds none of the keys.
//! - A lock that is replaced from outside ([`WaitQueue::lock_replaced`]) can give shares to several
//!   waiting tokens at once. The token that already upgrades stays; otherwise the one with the earliest
//!   place for an exclusive hold upgrades. The exclusive requests of the other tokens are refused.
//!
//! Every operation is `O(log n)`, wherever in the queue it happens. Only the first [`WaitQueue::next`]
//! after [`WaitQueue::lock_replaced`] looks at every place.

// Long because: the order of a queue is one set of rules over one index.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::place::{Counts, Outline, Place, PlaceId, Places, Seq, Ticket};
use crate::lock::{CompactToken, Deadline, Lock, Mode, Now, Token};

/// What is to be done next with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This request is granted.
    Grant(PlaceId, Seq),
    /// Its token holds a share, and another token already waits to convert its own. `None`: nobody listens.
    Deadlock(PlaceId, Option<Seq>),
    /// The turn of a place for several keys has come, if the lock admits it.
    Several {
        id: PlaceId,
        /// Whether there are absent shares ahead, beside which only a share may enter.
        is_behind_shares: bool,
    },
}

/// The places of one key. There is no queue without a place.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum WaitQueue {
    /// Most queues have one place, and there may be many such queues.
    Sole {
        id: PlaceId,
        is_upgrading: bool,
        is_owner: bool,
        is_lock_replaced: bool,
    },
    /// Two places or more.
    Line(Box<Line>),
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Line {
    by_ticket: BTreeMap<Ticket, PlaceId>,
    /// The tickets of those that are not absent shares.
    stops: BTreeSet<Ticket>,
    by_token: BTreeMap<CompactToken, PlaceId>,
    /// The place that upgrades. It waits for the exclusive hold.
    upgrading: Option<PlaceId>,
    /// Places whose tokens have got a hold since the last look. They may have ended. The last one comes first.
    owners: Vec<Ticket>,
    is_lock_replaced: bool,
    counts: Counts,
}

/// Places come and go.
impl WaitQueue {
    pub(super) fn of(id: PlaceId) -> Self {
        Self::Sole {
            id,
            is_upgrading: false,
            is_owner: false,
            is_lock_replaced: false,
        }
    }

    pub(super) fn insert<L>(&mut self, id: PlaceId, places: &Places<L>) {
        if let Self::Sole {
            id: first,
            is_upgrading,
            is_owner,
            is_lock_replaced,
        } = *self
        {
            let mut line = Box::<Line>::default();
            if let Some(place) = places.get(first) {
                line.insert(first, place);
                line.owners.extend(is_owner.then_some(place.ticket));
            }
            line.upgrading = is_upgrading.then_some(first);
            line.is_lock_replaced = is_lock_replaced;
            *self = Self::Line(line);
        }
        if let (Self::Line(line), Some(place)) = (self, places.get(id)) {
            line.insert(id, place);
        }
    }

    /// Takes a place out. Whether the queue is empty now.
    pub(super) fn remove<L>(&mut self, id: PlaceId, place: &Place<L>) -> bool {
        let Self::Line(line) = self else {
            return true;
        };
        line.by_ticket.remove(&place.ticket);
        line.stops.remove(&place.ticket);
        line.by_token.remove(&place.token);
        line.upgrading = line.upgrading.filter(|upgrading| *upgrading != id);
        let (true, Some((ticket, last))) =
            (line.by_ticket.len() == 1, line.by_ticket.first_key_value())
        else {
            return false;
        };
        *self = Self::Sole {
            id: *last,
            is_upgrading: line.upgrading == Some(*last),
            is_owner: line.owners.contains(ticket),
            is_lock_replaced: line.is_lock_replaced,
        };
        false
    }

    /// Gives a place an earlier ticket. The caller changes the place itself.
    pub(super) fn move_to<L>(&mut self, id: PlaceId, place: &Place<L>, ticket: Ticket) {
        if let Self::Line(line) = self {
            line.by_ticket.remove(&place.ticket);
            line.by_ticket.insert(ticket, id);
            if line.stops.remove(&place.ticket) {
                line.stops.insert(ticket);
            }
        }
    }

    /// Follows a place that has changed.
    pub(super) fn changed<L>(
        &mut self,
        id: PlaceId,
        place: &Place<L>,
        before: Outline,
        after: Outline,
    ) {
        let upgrades = self.upgrading() == Some(id);
        if upgrades && !place.wants_exclusive() {
            self.set_upgrading(None);
        }
        if let Self::Line(line) = self {
            line.counts.change(before.kind, after.kind);
            match after.stops {
                true => line.stops.insert(place.ticket),
                false => line.stops.remove(&place.ticket),
            };
        }
    }

    /// Notes that the token of a place has a hold.
    pub(super) fn note_owner(&mut self, ticket: Ticket) {
        match self {
            Self::Sole { is_owner, .. } => *is_owner = true,
            Self::Line(line) => line.owners.push(ticket),
        }
    }

    /// Notes that the lock was replaced by another one, whose holders may be waiting here.
    pub(super) fn lock_replaced(&mut self) {
        self.set_lock_replaced(true);
    }

    /// Notes that the lock was just looked at, and has changed by a grant only.
    pub(super) fn lock_granted(&mut self) {
        self.set_lock_replaced(false);
    }

    fn set_lock_replaced(&mut self, to: bool) {
        match self {
            Self::Sole {
                is_lock_replaced, ..
            } => *is_lock_replaced = to,
            Self::Line(line) => line.is_lock_replaced = to,
        }
    }

    pub(super) fn is_lock_replaced(&self) -> bool {
        match self {
            Self::Sole {
                is_lock_replaced, ..
            } => *is_lock_replaced,
            Self::Line(line) => line.is_lock_replaced,
        }
    }

    pub(super) fn set_upgrading(&mut self, to: Option<PlaceId>) {
        match self {
            Self::Sole {
                id, is_upgrading, ..
            } => *is_upgrading = to == Some(*id),
            Self::Line(line) => line.upgrading = to,
        }
    }
}

impl Line {
    fn insert<L>(&mut self, id: PlaceId, place: &Place<L>) {
        let outline = place.outline();
        self.by_ticket.insert(place.ticket, id);
        self.by_token.insert(place.token.clone(), id);
        if outline.stops {
            self.stops.insert(place.ticket);
        }
        self.counts.change(None, outline.kind);
    }
}

/// Decisions.
impl WaitQueue {
    /// The request that is to be granted or refused now, if there is one. The caller takes it out.
    pub(super) fn next<L>(
        &mut self,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Next> {
        self.settle(places, lock, now);
        if self.take_lock_replaced() {
            self.set_owners(places, lock, now);
        }
        let next = self.decide(places, lock, now);
        // A free lock is kept for an absent place, or one for several keys. A lock that comes to the key by RENAME takes its place, and nobody tells.
        let is_kept = matches!(next, None | Some(Next::Several { .. }));
        if is_kept && lock.is_none_or(|lock| lock.is_free(now)) {
            self.set_lock_replaced(true);
        }
        next
    }

    fn decide<L>(&mut self, places: &Places<L>, lock: Option<&Lock>, now: Now) -> Option<Next> {
        while let Some(owner) = self.pop_owner() {
            if let Some(next) = self.next_of(owner, places, lock, now) {
                self.note_owner(places.get(owner)?.ticket);
                return Some(next);
            }
        }
        let head = self.candidate(places)?;
        let place = places.get(head)?;
        let (seq, request) = place.first()?;
        if place.several.is_some() {
            return Some(Next::Several {
                id: head,
                is_behind_shares: self.first() != Some(head),
            });
        }
        // An absent share ahead keeps a writer out.
        if request.mode == Mode::Exclusive && self.first() != Some(head) {
            return None;
        }
        let token = place.token.text();
        Lock::admits(lock, request.mode, token.as_token(), now).ok()?;
        self.note_owner(place.ticket);
        Some(Next::Grant(head, seq))
    }

    /// What is to be done with the place of a token that has got a hold.
    fn next_of<L>(
        &mut self,
        owner: PlaceId,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Next> {
        let place = places.get(owner).filter(|p| p.several.is_none())?;
        let token = place.token.text();
        lock?.hold_of(token.as_token(), now)?;
        if !place.is_absent() {
            let is_alone = Lock::admits(lock, Mode::Exclusive, token.as_token(), now).is_ok();
            let next = match is_alone {
                true => place.first().map(|(seq, _)| seq),
                false => place.first_of(Mode::Shared),
            };
            if let Some(seq) = next {
                return Some(Next::Grant(owner, seq));
            }
        }
        if !place.wants_exclusive() {
            return None;
        }
        match self.upgrading() {
            Some(other) if other != owner => {
                Some(Next::Deadlock(owner, place.first_of(Mode::Exclusive)))
            }
            _ => {
                self.set_upgrading(Some(owner));
                None
            }
        }
    }

    /// Makes an upgrade whose share has ended a writer like any other.
    fn settle<L>(&mut self, places: &Places<L>, lock: Option<&Lock>, now: Now) {
        let Some(place) = self.upgrading().and_then(|id| places.get(id)) else {
            return;
        };
        let token = place.token.text();
        if lock.is_none_or(|lock| lock.hold_of(token.as_token(), now).is_none()) {
            self.set_upgrading(None);
        }
    }

    /// Notes all places whose tokens have a hold. The one that is to upgrade comes first. `O(n log n)` where the lock is held.
    fn set_owners<L>(&mut self, places: &Places<L>, lock: Option<&Lock>, now: Now) {
        let Some(lock) = lock.filter(|lock| !lock.is_free(now)) else {
            return; // Nobody is an owner.
        };
        let is_owner = |place: &&Place<L>| {
            let token = place.token.text();
            lock.hold_of(token.as_token(), now).is_some()
        };
        match self {
            Self::Sole {
                id, is_owner: is, ..
            } => *is = places.get(*id).filter(is_owner).is_some(),
            Self::Line(line) => {
                let all = line.by_ticket.values().filter_map(|id| places.get(*id));
                let mut owners: Vec<&Place<L>> = all.filter(is_owner).collect();
                owners.sort_unstable_by_key(|place| {
                    Reverse((!place.wants_exclusive(), place.ticket))
                });
                line.owners = owners.into_iter().map(|place| place.ticket).collect();
            }
        }
    }

    fn pop_owner(&mut self) -> Option<PlaceId> {
        match self {
            Self::Sole { id, is_owner, .. } => std::mem::take(is_owner).then_some(*id),
            Self::Line(line) => {
                while let Some(ticket) = line.owners.pop() {
                    if let Some(id) = line.by_ticket.get(&ticket) {
                        return Some(*id);
                    }
                }
                None
            }
        }
    }

    fn take_lock_replaced(&mut self) -> bool {
        let was = self.is_lock_replaced();
        self.set_lock_replaced(false);
        was
    }

    /// When the passing of time alone may let a request in. It is never too late, but may be too early.
    pub(super) fn wakes_at<L>(
        &self,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Deadline> {
        let lock = lock?;
        let place = places.get(self.candidate(places)?)?;
        let token = place.token.text();
        let others = lock.latest_deadline_of_others(token.as_token());
        let own = lock.hold_of(token.as_token(), now);
        match (own.map(|(_, hold)| hold.deadline), others) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        }
    }

    /// Whether a request must wait behind others. An absent place lets its own token in when its turn has come. Absent shares whose turn
    /// has come let in each share.
    pub(super) fn is_ahead_of<L>(&self, token: Token<'_>, mode: Mode, places: &Places<L>) -> bool {
        let own = self.of_token(token, places);
        let place = match own.and_then(|id| places.get(id)) {
            None => return mode == Mode::Exclusive || self.candidate(places).is_some(),
            Some(place) if !place.is_absent() => return true,
            Some(place) => place,
        };
        if self.upgrading().is_some() {
            return self.upgrading() != own;
        }
        match (self, mode) {
            (Self::Sole { .. }, _) => false,
            (Self::Line(_), Mode::Exclusive) => self.first() != own,
            (Self::Line(line), Mode::Shared) => line.stops.range(..place.ticket).next().is_some(),
        }
    }
}

/// Questions.
impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Sole { .. } => 1,
            Self::Line(line) => line.by_ticket.len(),
        }
    }

    pub(super) fn counts<L>(&self, places: &Places<L>) -> Counts {
        match self {
            Self::Sole { id, .. } => {
                let kind = places.get(*id).and_then(|place| place.outline().kind);
                kind.map_or_else(Counts::default, Counts::of)
            }
            Self::Line(line) => line.counts,
        }
    }

    pub(super) fn upgrading(&self) -> Option<PlaceId> {
        match self {
            Self::Sole {
                id, is_upgrading, ..
            } => is_upgrading.then_some(*id),
            Self::Line(line) => line.upgrading,
        }
    }

    pub(super) fn of_token<L>(&self, token: Token<'_>, places: &Places<L>) -> Option<PlaceId> {
        match self {
            Self::Sole { id, .. } => {
                let place = places.get(*id)?;
                place.token.is(token).then_some(*id)
            }
            Self::Line(line) => line.by_token.get(&CompactToken::from(token)).copied(),
        }
    }

    /// All places in the order in which they stand.
    pub(super) fn iter(&self) -> impl Iterator<Item = PlaceId> + '_ {
        let (sole, line) = match self {
            Self::Sole { id, .. } => (Some(*id), None),
            Self::Line(line) => (None, Some(line)),
        };
        let upgrading = line.and_then(|line| line.upgrading);
        let ids = line.into_iter().flat_map(|line| line.by_ticket.values());
        let rest = ids.copied().filter(move |id| Some(*id) != upgrading);
        sole.into_iter().chain(upgrading).chain(rest)
    }

    /// The first place.
    fn first(&self) -> Option<PlaceId> {
        self.iter().next()
    }

    /// The first place that is not an absent share: all ahead of it are no matter to a reader.
    pub(super) fn candidate<L>(&self, places: &Places<L>) -> Option<PlaceId> {
        match self {
            Self::Sole { id, .. } => {
                let stops = places.get(*id)?.outline().stops;
                stops.then_some(*id)
            }
            Self::Line(line) => line.upgrading.or_else(|| {
                let ticket = line.stops.first()?;
                line.by_ticket.get(ticket).copied()
            }),
        }
    }

    /// Whether the indexes agree with the places.
    #[cfg(test)]
    pub(super) fn is_tight<L>(&self, places: &Places<L>) -> bool {
        let Self::Line(line) = self else {
            return true;
        };
        let mut counts = Counts::default();
        for (ticket, id) in &line.by_ticket {
            let place = places.get(*id).unwrap();
            let outline = place.outline();
            counts.change(None, outline.kind);
            assert_eq!(place.ticket, *ticket);
            assert_eq!(line.stops.contains(ticket), outline.stops);
            assert_eq!(line.by_token.get(&place.token), Some(id));
        }
        let len = line.by_ticket.len();
        len > 1 && line.by_token.len() == len && line.counts == counts
    }
}
