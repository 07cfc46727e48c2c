//! The rules ([`crate::rules`]) are applied to the book, and the agenda learns what they leave to
//! do.

use std::hash::{BuildHasher, Hash};

use super::agenda::Pass;
use super::Registry;
use crate::book::Indexed;
use crate::lock::{FenceClock, Lock, Now, Token};
use crate::rules::come::{self, Came, Entered, NewRequest};
use crate::rules::grant::{self, Decision, Granted, Offer, Step};
use crate::rules::key_ref::KeyRef;
use crate::rules::keys::Keys;
use crate::rules::leave::{self, LeaveReason, Leaving, Removed};
use crate::rules::place::{PlaceId, Seq};
use crate::rules::Book;

/// What a grant depends on beside the lock.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// No lease is longer, in milliseconds.
    pub longest_ms: u64,
    /// A result that does not exist, as was just seen.
    pub absent: Option<&'a [u8]>,
    /// Whether the lock may have changed since the last step, by more than a grant.
    pub is_first: bool,
}

impl Terms<'_> {
    /// Any lease, and no result.
    pub const ANY: Self = Self {
        longest_ms: u64::MAX,
        absent: None,
        is_first: true,
    };
}

/// Requests come and leave.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes a request that was refused: see [`come::enter`]. Its token does not wait for any of
    /// the keys otherwise ([`Registry::waits_otherwise`]).
    pub fn enter(&mut self, keys: &Keys, new: NewRequest<'_, L>) -> (Entered, Option<Came<L>>) {
        self.by_rules(|book| come::enter(book, keys, new))
    }

    /// Has a request leave as if it had never come: see [`come::take_back`].
    pub fn take_back(&mut self, came: Came<L>) -> Option<bool> {
        self.by_rules(|book| come::take_back(book, came))
    }

    /// Takes a request out of its place, which stays or ends by the rules.
    pub(super) fn leave(&mut self, id: PlaceId, seq: Seq, why: LeaveReason) -> Option<Removed<L>> {
        self.by_rules(|book| leave::leave(book, id, seq, why))
    }

    /// Ends a place. There is one entry for each of its requests, or one without a listener.
    pub(super) fn end(&mut self, id: PlaceId) -> Vec<Removed<L>> {
        self.by_rules(|book| leave::end(book, id))
    }

    /// Applies a rule to the book. The keys of places for several keys that it has ended are
    /// marked: the waiters behind them may be next.
    #[inline]
    pub(super) fn by_rules<R>(&mut self, rule: impl FnOnce(&mut Indexed<L, S>) -> R) -> R {
        let result = rule(&mut self.book);
        for keys in self.book.take_ended() {
            for key in keys.iter() {
                self.mark(key);
            }
        }
        if self.is_empty() {
            // Whoever comes next is not passed by a way that goes on.
            self.agenda.pass = Pass::default();
        }
        result
    }

    /// Takes out the request of a client that is gone; `None` when it does not wait any more. With
    /// KEEP its place stays. The caller marks the key.
    pub fn remove_listener(&mut self, listener: L, leaving: Leaving) -> Option<Removed<L>> {
        let (id, seq) = self.book.listeners.of_client(listener)?;
        self.leave(id, seq, LeaveReason::Ungranted(leaving))
    }

    /// Takes out what is over first: the next request that times out, or place whose grace has
    /// ended, which has no listener. The caller marks the key.
    pub fn take_timed_out(&mut self, leaving: Leaving) -> Option<Removed<L>> {
        self.by_rules(|book| leave::take_timed_out(book, leaving))
    }

    /// Whether anything is over.
    pub fn is_any_over(&self, now_us: u64) -> bool {
        leave::first_over(&self.book, now_us).is_some()
    }

    /// What is over first, if that is an absent place: its first key.
    pub fn absent_and_over(&self, now_us: u64) -> Option<&KeyRef> {
        let place = self.book.place(leave::first_over(&self.book, now_us)?)?;
        place.is_absent().then(|| place.keys.first())
    }

    /// Has that place stay for its grace from this instant of the monotonic clock on. False if that
    /// is over, too.
    pub fn stay_from(&mut self, from_us: u64, now_us: u64) -> bool {
        leave::stay_from(&mut self.book, from_us, now_us)
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
        self.mark(key);
        removed
    }

    /// Ends any place. `None` if there is none.
    pub fn dismiss_any(&mut self) -> Option<Vec<Removed<L>>> {
        let id = self.any_place()?;
        Some(self.end(id))
    }

    /// Ends the place at which nobody listens that a token has for these keys: see
    /// [`leave::resume`]. The caller serves the keys.
    pub fn resume(&mut self, keys: &Keys, token: Token<'_>) -> Option<u64> {
        self.by_rules(|book| leave::resume(book, keys, token))
    }
}

/// Locks are passed on.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Decides who is next on a key with this lock. A client is taken out, granted or refused; a
    /// channel is to be told first. `None` when nobody is next. A place without a listener that can
    /// never be granted ends without a word. A place for several keys is not granted here, but
    /// noted: see [`Registry::take_candidate`].
    ///
    /// A lease counts from its grant, which `granted_at` makes of `now`.
    pub fn grant_next(
        &mut self,
        key: &KeyRef,
        lock: Option<&Lock>,
        terms: &Terms<'_>,
        now: Now,
        granted_at: impl FnOnce(Now) -> Now,
        fences: &mut FenceClock,
    ) -> Option<Step<L>> {
        self.follow_changes(key);
        if self.agenda.endings.hold_back(key) {
            return None;
        }
        let key_id = self.book.queues.id_of(key)?;
        if terms.is_first {
            grant::settle(&mut self.book, key_id, lock, now);
        }
        let decision = grant::next(&mut self.book, key_id, terms.absent, lock, now)?;
        if let Decision::Claim(id) = decision {
            let ticket = self.book.place(id)?.ticket;
            self.agenda.step.candidates.insert((ticket, id));
        }
        let (longest_ms, at) = (terms.longest_ms, || granted_at(now));
        let step = self.by_rules(|book| grant::step(book, decision, lock, longest_ms, at, fences));
        match step {
            Some(Step::Offered(offer)) if self.has_ended(&offer) => {
                Some(Step::Unheard(offer.request))
            }
            step => step,
        }
    }

    /// Whether the request of an offer is among those that end.
    fn has_ended(&self, offer: &Offer) -> bool {
        let seq = offer.request.seq;
        self.agenda.endings.has(&offer.channel, seq) || self.is_lost(seq)
    }

    /// Somebody has received what was published: see [`grant::heard`].
    pub fn heard(&mut self, offer: Offer) -> Option<Granted<L>> {
        self.by_rules(|book| grant::heard(book, offer))
    }
}
