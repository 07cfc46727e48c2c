//! The order of the places of one key. The queue lives beside the lock, on the server that serves
//! the listeners. It is never persisted or replicated.
//!
//! # The order
//!
//! - Readers and writers share one line, in the order of their tickets. Nobody passes a place whose
//!   turn has not come. So a reader never passes a writer, and nobody starves. Consecutive readers
//!   at the head enter one after the other in the same moment.
//! - The turn of an *absent* place comes as that of any other. It then counts as a holder of its
//!   mode. So an absent writer stops all behind it, an absent reader stops writers only, and an
//!   absent permit takes one. Of a run of absent permits only the last one has to be looked at: it
//!   fits beside all ahead of it only if each of those fits beside the ones ahead of that
//!   ([`order`] has their number and the smallest limit).
//! - A token *upgrades* when it has a hold and waits for one that tolerates fewer holders than
//!   there are. Its place stands ahead of the line, because nobody in the line could enter before
//!   others leave. When its hold ends first, it is a waiter like any other, and its place keeps its
//!   ticket.
//! - A place becomes an upgrade in the step in which its token gets its hold. Otherwise it would
//!   wait behind a writer who waits for that hold to end.
//! - Several tokens may upgrade. Of these, the one that tolerates the most holders is always the
//!   first that can be granted ([`upgrades`]). But only one token at a time upgrades to the
//!   exclusive hold. A second one would wait for the first, and the first for it. So the second
//!   request is refused: [`Refusal::Deadlock`](crate::lock::Refusal) or [`Next::Deadlock`].
//! - All requests of a place have one owner. When one is granted, the others are granted too,
//!   unless other holders keep them out.
//! - A place for several keys stops all behind it, also when it is absent. The queue only says that
//!   it stands at the head ([`Next::Several`]). It never upgrades, because its token holds none of
//!   the keys.
//! - A lock that is replaced from outside ([`WaitQueue::set_lock_replaced`]) can give holds to
//!   several waiting tokens at once. The token that already upgrades to the exclusive hold stays;
//!   otherwise the one with the earliest place for an exclusive hold upgrades. The exclusive
//!   requests of the others are refused.
//!
//! Every operation is `O(log n)`, wherever in the queue it happens, with three exceptions. The
//! first [`WaitQueue::next`] after [`WaitQueue::set_lock_replaced`] looks at every place, or at
//! every hold if those are fewer. One after the key has got an earlier end from outside looks at
//! every place that upgrades. And absent permits whose tokens have a hold by a lock from elsewhere
//! are looked at one by one.

#[cfg(test)]
mod costs;
pub(super) mod in_the_way;
mod line;
mod order;
mod turn;
mod upgrades;

use std::cmp::Reverse;

pub(super) use self::line::WaitQueue;
use self::turn::{Owner, Turn};
use super::place::{Place, PlaceId, Places};
use super::request::Seq;
use crate::lock::{Deadline, Lock, Mode, Now, Occupancy, Token};

/// What is to be done next with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This request is granted.
    Grant(PlaceId, Seq),
    /// Its token has a hold, and another token already waits to make its own exclusive. `None`:
    /// nobody listens.
    Deadlock(PlaceId, Option<Seq>),
    /// A place for several keys stands at the head. [`WaitQueue::admits_several`] says whether its
    /// turn has come.
    Several(PlaceId),
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
        // A free lock is kept for an absent place, or one for several keys. A lock that comes to
        // the key by RENAME takes its place, and nobody tells.
        let is_kept = matches!(next, None | Some(Next::Several(_)));
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
        let turn = match self.sole_listener(places).filter(|_| lock.is_none()) {
            Some((id, seq)) => Turn::Of(id, seq), // The usual case: nothing keeps it out.
            None => self.turn(places, lock, now, None),
        };
        match turn {
            Turn::Of(id, seq) => {
                self.note_owner(places.get(id)?.ticket);
                Some(Next::Grant(id, seq))
            }
            Turn::OfSeveral(id) => Some(Next::Several(id)),
            Turn::Nobody | Turn::Come(_) => None,
        }
    }

    /// The first request of the only place, if it is for one key and does not upgrade.
    fn sole_listener<L>(&self, places: &Places<L>) -> Option<(PlaceId, Seq)> {
        let Self::Sole {
            id,
            is_upgrading: false,
            ..
        } = *self
        else {
            return None;
        };
        let place = places.get(id).filter(|place| !place.is_for_several_keys());
        Some((id, place?.first()?.0))
    }

    /// What is to be done with the place of a token that has got a hold.
    fn next_of<L>(
        &mut self,
        owner: PlaceId,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Next> {
        let place = places
            .get(owner)
            .filter(|place| !place.is_for_several_keys())?;
        let Owner { own, least } = Owner::of(place, lock, now)?;
        if let Some(seq) = place.first_tolerating(least) {
            return Some(Next::Grant(owner, seq));
        }
        if !place.has_below(own) {
            return None;
        }
        let other = self.exclusive_upgrade(places);
        if place.wants_exclusive() && other.is_some_and(|other| other != owner) {
            return Some(Next::Deadlock(owner, place.first_exclusive()));
        }
        self.upgrade(owner, place);
        None
    }

    /// Makes upgrades whose hold has ended, or tolerates no more than they ask for, waiters like
    /// any other.
    fn settle<L>(&mut self, places: &Places<L>, lock: Option<&Lock>, now: Now) {
        let is_replaced = self.is_lock_replaced();
        if let Self::Line(line) = self {
            if is_replaced || lock.is_none_or(|lock| lock.is_free(now)) {
                line.upgrades.look_again();
            }
        }
        while let Some(place) = self.upgrade_to_look_at(now).and_then(|id| places.get(id)) {
            let token = place.token.text();
            let own = lock.and_then(|lock| lock.hold_of(token.as_token(), now));
            let is_upgrade =
                |(own, _): &(Mode, _)| place.has_below(own.tolerates()) || !place.is_absent();
            match (own.filter(is_upgrade), &mut *self) {
                (None, queue) => queue.end_upgrade(place),
                (Some((_, hold)), Self::Line(line)) => {
                    line.upgrades.set_end(place.ticket, hold.deadline);
                }
                (Some(_), Self::Sole { .. }) => return,
            }
        }
    }

    /// A place that upgrades, as far as is known.
    fn upgrade_to_look_at(&self, now: Now) -> Option<PlaceId> {
        match self {
            Self::Sole {
                id, is_upgrading, ..
            } => is_upgrading.then_some(*id),
            Self::Line(line) => line.id_of(line.upgrades.first_to_look_at(now)?),
        }
    }

    /// Notes all places whose tokens have a hold. The one that is to upgrade comes first. `O(n log
    /// n)` where the lock is held.
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
                // There may be a million places, or as many holds.
                let mut owners: Vec<&Place<L>> = if lock.len() < line.order.len() {
                    let tokens = lock.live_holders(now).map(|(token, _)| token);
                    let ids = tokens.filter_map(|token| line.by_token.get(&*token).copied());
                    ids.filter_map(|id| places.get(id)).collect()
                } else {
                    let all = line.order.iter().filter_map(|entry| places.get(entry.id));
                    all.filter(is_owner).collect()
                };
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
                    if let Some(id) = line.id_of(ticket) {
                        return Some(id);
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

    /// When the passing of time alone may let a request in. It is never too late, but may be too
    /// early.
    pub(super) fn wakes_at<L>(
        &self,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Deadline> {
        let lock = lock?;
        let place = places.get(self.candidate(places)?)?;
        // The end of the only hold matters, whoever has it.
        if lock.len() == 1 || lock.mode().limit().is_some() || place.has_counted() {
            return lock.earliest_deadline(now);
        }
        let token = place.token.text();
        let others = lock.latest_deadline_of_others(token.as_token());
        // Holds that are over let in nobody any more: the place is absent, or it would be granted.
        let others = others.filter(|deadline| !deadline.is_over(now.ms()));
        let own = lock.hold_of(token.as_token(), now);
        match (own.map(|(_, hold)| hold.deadline), others) {
            (Some(own), Some(others)) => Some(own.min(others)),
            (own, others) => own.or(others),
        }
    }

    /// Whether a request must wait behind others. An absent place lets its own token in when its
    /// turn has come. The absent places ahead whose turn has come count as holders.
    pub(super) fn is_ahead_of<L>(
        &self,
        token: Token<'_>,
        mode: Mode,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> bool {
        let own = self.of_token(token, places);
        if own
            .and_then(|id| places.get(id))
            .is_some_and(|place| !place.is_absent())
        {
            return true;
        }
        match self.turn(places, lock, now, Some((own, mode))) {
            Turn::Come(Occupancy::NONE) => false,
            Turn::Come(reserved) => !turn::with(lock, now, reserved).admits(mode),
            Turn::Of(..) | Turn::OfSeveral(_) | Turn::Nobody => true,
        }
    }

    /// Whether the turn of a place for several keys has come here, where it asks for this mode.
    pub(super) fn admits_several<L>(
        &self,
        id: PlaceId,
        mode: Mode,
        places: &Places<L>,
        lock: Option<&Lock>,
        now: Now,
    ) -> bool {
        let turn = self.turn(places, lock, now, Some((Some(id), mode)));
        let (Turn::Come(reserved), Some(place)) = (turn, places.get(id)) else {
            return false;
        };
        turn::admits(lock, now, reserved, place, mode)
    }
}
