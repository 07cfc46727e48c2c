//! Requests leave, and places end.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::agenda::Pass;
use super::room::Leaving;
use super::Registry;
use crate::lock::{CompactToken, Mode, Token};
use crate::rules::key_ref::KeyRef;
use crate::rules::keys::Keys;
use crate::rules::place::Linger;
use crate::rules::place::{Kept, Listener, Place, PlaceId, Request, Seq, Stands};
use crate::rules::Book;

/// A request, or a place of nobody's, that waits no more. Whoever took it out ends its wait.
#[derive(Debug)]
pub struct Removed<L> {
    /// What it waited for.
    pub keys: Keys,
    /// Whatever is to be told; `None` of a place at which nobody has listened.
    pub listener: Option<Listener<L>>,
    /// Whose it is.
    pub token: CompactToken,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Since when it has had its place, on the monotonic clock.
    pub since_us: u64,
    /// Since when somebody has listened there whose wait is not counted yet.
    pub uncounted_us: u64,
    /// Whether the server has generated the token.
    pub is_server_generated: bool,
    /// What its hold is bound to.
    pub linger: Option<Linger>,
    /// The result that it takes in place of a hold.
    pub result: Option<Rc<[u8]>>,
    /// What has become of its place.
    pub rest: PlaceAfter,
}

/// What has become of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceAfter {
    /// It has ended.
    Ended,
    /// Others listen at it.
    Listens,
    /// Nobody listens at it for a while.
    Absent,
}

/// Why a request leaves its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveReason {
    /// It has ended without a grant: with KEEP the place stays.
    Ungranted(Leaving),
    /// It was granted: the place ends with the last request.
    Granted,
    /// It was refused, or its place ends: likewise.
    Refused,
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes out the request of a client that is gone; `None` when it does not wait any more. With
    /// KEEP its place stays. The caller marks the key.
    pub fn remove_listener(&mut self, listener: L, leaving: Leaving) -> Option<Removed<L>> {
        let (id, seq) = self.book.listeners.of_client(listener)?;
        self.leave(id, seq, LeaveReason::Ungranted(leaving))
    }

    /// Takes out what is over first: the next request that times out, or place whose grace has
    /// ended, which has no listener. The caller marks the key.
    pub fn take_timed_out(&mut self, leaving: Leaving) -> Option<Removed<L>> {
        let id = self.first_over(leaving.now_us)?;
        match self.book.place(id)?.timed_out(leaving.now_us) {
            Some(seq) => self.leave(id, seq, LeaveReason::Ungranted(leaving)),
            None => self.end(id).pop(),
        }
    }

    /// The first place at which a time is over.
    fn first_over(&self, now_us: u64) -> Option<PlaceId> {
        let first = self.book.first_due();
        first
            .filter(|(at_us, _)| *at_us <= now_us)
            .map(|(_, id)| id)
    }

    /// Whether anything is over.
    pub fn is_any_over(&self, now_us: u64) -> bool {
        self.first_over(now_us).is_some()
    }

    /// What is over first, if that is an absent place: its first key.
    pub fn absent_and_over(&self, now_us: u64) -> Option<&KeyRef> {
        let place = self.book.place(self.first_over(now_us)?)?;
        place.is_absent().then(|| place.keys.first())
    }

    /// Has that place stay for its grace from this instant of the monotonic clock on. False if that
    /// is over, too.
    pub fn stay_from(&mut self, from_us: u64, now_us: u64) -> bool {
        let Some(id) = self.first_over(now_us) else {
            return false;
        };
        let kept = self.book.place(id).and_then(|place| place.kept);
        let until_us = grace_end(from_us, kept.map_or(0, |kept| kept.ms));
        if until_us <= now_us {
            return false;
        }
        let stay = |place: &mut Place<L>| place.until_us = until_us;
        self.book.change(id, stay).is_some()
    }

    /// Has a token that holds nothing give up its place for a key. The caller answers those who
    /// listened, and serves the key.
    pub fn give_up(&mut self, key: &KeyRef, token: Token<'_>) -> Vec<Removed<L>> {
        let id = self.place_of_token(key, token);
        id.map_or_else(Vec::new, |id| self.end(id))
    }

    /// Ends places for a key, `most` at most. If any are left, the key is marked.
    pub fn dismiss(&mut self, key: &KeyRef, most: usize) -> Vec<Removed<L>> {
        let ids: Vec<PlaceId> = self.all_at(key).take(most).collect();
        let removed = ids.into_iter().flat_map(|id| self.end(id)).collect();
        self.mark(key.db, &key.name);
        removed
    }

    /// Ends any place. `None` if there is none.
    pub fn dismiss_any(&mut self) -> Option<Vec<Removed<L>>> {
        let id = self.any_place()?;
        Some(self.end(id))
    }

    /// Ends the place at which nobody listens that a token has for these keys, as it was just
    /// granted them, or asked again without KEEP. Whether there was one, and since when on the
    /// monotonic clock. The caller serves the keys.
    pub fn resume(&mut self, keys: &Keys, token: Token<'_>) -> Option<u64> {
        let id = self.place_of(keys, token)?;
        let place = self.book.place(id)?;
        if !place.is_absent() || !place.keys.are(keys, false) {
            return None;
        }
        let since_us = place.since_us;
        self.end(id);
        Some(since_us)
    }

    /// Takes a request out of its place, which stays or ends by the rules.
    pub(super) fn leave(&mut self, id: PlaceId, seq: Seq, why: LeaveReason) -> Option<Removed<L>> {
        let change = self.agenda.last_change;
        let place = self.book.place(id)?;
        let (request, uncounted_us) = (place.request(seq)?, place.uncounted_us);
        let may_stay = match why {
            LeaveReason::Ungranted(leaving) => {
                place.keys().all(|key| self.may_be_absent(key, leaving))
            }
            LeaveReason::Granted | LeaveReason::Refused => false,
        };
        let keeps = matches!(why, LeaveReason::Ungranted(_)) && request.keep_ms > 0;
        let result = self.book.results.take(id, seq);
        if keeps {
            self.book.results.keep(id, result.clone());
        }
        let (request, rest) = self.book.change(id, |place| {
            let request = place.take(seq)?;
            match why {
                LeaveReason::Ungranted(leaving) => {
                    if request.keep_ms > 0 {
                        let (mode, ms) = (request.mode, request.keep_ms);
                        place.kept = Some(Kept { mode, ms });
                    }
                    place.uncounted_us = leaving.now_us;
                    let grace_ms = place.kept.map_or(0, |kept| kept.ms);
                    place.until_us = grace_end(leaving.now_us, grace_ms);
                    (place.user, place.since_change) = (request.user, change);
                }
                // Its token has a hold now: what else it waits for is looked at anew.
                LeaveReason::Granted if !place.is_for_several_keys() => place.stands = Stands::Owns,
                LeaveReason::Granted | LeaveReason::Refused => {}
            }
            if place.is_absent() && !may_stay {
                place.kept = None;
            }
            let rest = match (place.is_over(), place.is_absent()) {
                (true, _) => PlaceAfter::Ended,
                (_, true) => PlaceAfter::Absent,
                (_, false) => PlaceAfter::Listens,
            };
            Some((request, rest))
        })??;
        let linger = self.forget(id, seq, &request);
        let place = self.book.place(id)?;
        let removed = removed(place, Some((request, uncounted_us)), (linger, result), rest);
        self.drop_if_over(id);
        Some(removed)
    }

    /// Ends a place. There is one entry for each of its requests, or one without a listener.
    pub(super) fn end(&mut self, id: PlaceId) -> Vec<Removed<L>> {
        let mut all = Vec::new();
        while let Some(place) = self.book.place(id) {
            match place.first().map(|request| request.seq) {
                Some(seq) => all.extend(self.leave(id, seq, LeaveReason::Refused)),
                None => {
                    all.push(removed(place, None, (None, None), PlaceAfter::Ended));
                    self.book.change(id, |place| place.kept = None);
                    self.drop_if_over(id);
                }
            }
        }
        all
    }

    fn drop_if_over(&mut self, id: PlaceId) {
        if !self.book.place(id).is_some_and(Place::is_over) {
            return;
        }
        let Some(place) = self.book.remove(id) else {
            return;
        };
        if place.is_for_several_keys() {
            // The waiters behind it may be next.
            for key in place.keys() {
                self.mark(key.db, &key.name);
            }
            self.agenda.step.candidates.remove(&(place.ticket, id));
        }
        if self.is_empty() {
            // Whoever comes next is not passed by a way that goes on.
            self.agenda.pass = Pass::default();
        }
    }

    /// Forgets the listener of a request that has left its place. Returns what its hold is bound
    /// to.
    pub(super) fn forget(&mut self, id: PlaceId, seq: Seq, request: &Request<L>) -> Option<Linger> {
        if let Some(user) = request.user {
            self.book.load.users.remove(user);
        }
        self.book.listeners.remove(id, seq, &request.listener)
    }
}

pub(super) const fn grace_end(now_us: u64, keep_ms: u32) -> u64 {
    now_us.saturating_add((keep_ms as u64).saturating_mul(1_000))
}

/// `request` comes with the instant from which its wait is counted.
fn removed<L>(
    place: &Place<L>,
    request: Option<(Request<L>, u64)>,
    (linger, result): (Option<Linger>, Option<Rc<[u8]>>),
    rest: PlaceAfter,
) -> Removed<L> {
    let (request, uncounted_us) = request.unzip();
    let mode = request.as_ref().map(|request| request.mode);
    Removed {
        keys: place.keys.clone(),
        token: place.token.clone(),
        mode: mode.unwrap_or_else(|| place.mode()),
        since_us: place.since_us,
        uncounted_us: uncounted_us.unwrap_or(place.since_us),
        is_server_generated: request.as_ref().is_some_and(|one| one.is_server_generated),
        linger,
        result,
        listener: request.map(|request| request.listener),
        rest,
    }
}
