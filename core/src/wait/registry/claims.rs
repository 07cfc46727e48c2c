//! Places for several keys are granted.
//!
//! Such a place stands in the queue of each key, with one ticket. When its turn comes at one of
//! them, serving that key notes it as a *candidate*. Before the step ends, the caller takes the
//! candidates ([`Registry::take_candidate`]) and opens the keys of each, one after the other. If it
//! is the candidate's turn at all of them ([`Registry::turn_of`]), the caller has it granted
//! ([`Registry::grant_candidate`]). If not, nothing changes: the key that stops it will be served
//! when that ends, and notes it again.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::Registry;
use crate::lock::{Fence, Grant, Lock, Now, Token, TokenBuf};
use crate::rules::grant::{self, Decision, Granted, Offer};
use crate::rules::key_ref::{KeyId, KeyRef};
use crate::rules::keys::Several;
use crate::rules::leave::{LeaveReason, Leaving, Removed};
use crate::rules::place::{Place, PlaceId, Request, Seq, Ticket};
use crate::rules::Book;

/// A place for several keys whose turn has come at one of them, and perhaps at all.
#[derive(Clone, Debug)]
pub struct Candidate {
    place: PlaceId,
    ticket: Ticket,
    token: TokenBuf,
    /// Its keys.
    pub several: Rc<Several>,
}

impl Candidate {
    /// For whom it is.
    pub fn token(&self) -> Token<'_> {
        self.token.as_token()
    }
}

/// Whose turn it is at a key of a [`Candidate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnAt {
    /// That of the candidate, and the lock admits it.
    Its,
    /// That of another request. The key is to be served.
    Other,
    /// Nobody's.
    Nobody,
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// The next place for several keys that may be granted: as far as the queues say, it is the
    /// first one in all. The oldest comes first.
    pub fn take_candidate(&mut self) -> Option<Candidate> {
        while let Some((ticket, id)) = self.agenda.step.candidates.pop_first() {
            if self.is_behind() {
                let place = self.book.place(id);
                let keys: Vec<_> = place
                    .into_iter()
                    .flat_map(|place| place.keys.iter())
                    .cloned()
                    .collect();
                keys.iter().for_each(|key| self.follow_changes(key));
            }
            let place = self.book.place(id).filter(|place| place.ticket == ticket);
            let Some((place, several)) = place.and_then(|p| Some((p, p.keys.several()?))) else {
                continue;
            };
            // A place that converts may have lost its hold.
            let may_be_turn_at = |key: &KeyId| {
                self.book.converts(*key).next().is_some()
                    || self.book.first_stop(*key, place.ticket).is_none()
            };
            if place.ids.iter().all(may_be_turn_at) {
                return Some(Candidate {
                    place: id,
                    ticket,
                    token: TokenBuf::from(place.token.text().as_token()),
                    several: Rc::clone(several),
                });
            }
        }
        None
    }

    /// Whose turn it is at a key of a candidate with this lock.
    pub fn turn_of(
        &mut self,
        candidate: &Candidate,
        key: &KeyRef,
        lock: Option<&Lock>,
        now: Now,
    ) -> TurnAt {
        self.follow_changes(key);
        let Some(key_id) = self.book.queues.id_of(key) else {
            return TurnAt::Nobody;
        };
        if self.agenda.endings.hold_back(key) {
            return TurnAt::Nobody;
        }
        grant::settle(&mut self.book, key_id, lock, now);
        match grant::next(&mut self.book, key_id, None, lock, now) {
            Some(Decision::Claim(id)) if id == candidate.place => TurnAt::Its,
            Some(Decision::Claim(_)) | None => TurnAt::Nobody,
            Some(_) => TurnAt::Other,
        }
    }

    /// Ends the requests of a candidate for longer leases than `longest_ms`.
    pub fn end_too_long(&mut self, candidate: &Candidate, longest_ms: u64) -> Vec<Removed<L>> {
        let is_too_long = |_: &Self, request: &Request<L>| request.ttl.ms() > longest_ms;
        self.end_some(candidate, is_too_long, LeaveReason::Refused)
    }

    /// Ends the requests of a candidate whose connection is lost. The caller marks the key.
    pub fn end_lost(&mut self, candidate: &Candidate, leaving: Leaving) -> Vec<Removed<L>> {
        if self.agenda.endings.lost.is_empty() {
            return Vec::new(); // The usual case.
        }
        let is_lost = |all: &Self, request: &Request<L>| all.is_lost(request.seq);
        self.end_some(candidate, is_lost, LeaveReason::Ungranted(leaving))
    }

    fn end_some(
        &mut self,
        candidate: &Candidate,
        is_it: impl Fn(&Self, &Request<L>) -> bool,
        why: LeaveReason,
    ) -> Vec<Removed<L>> {
        let place = self.place_at(candidate);
        let all = place.into_iter().flat_map(|place| &place.requests);
        let some = all.filter(|request| is_it(self, request));
        let some: Vec<Seq> = some.map(|request| request.seq).collect();
        let leave = |seq| self.leave(candidate.place, seq, why);
        some.into_iter().filter_map(leave).collect()
    }

    /// The hold that the channel at the place of a candidate is to be told of. The caller publishes
    /// it first. If nobody has received it, the caller calls [`Registry::unheard`], ends the
    /// request, and grants the candidate to the clients that are left.
    pub fn offer_candidate(&self, candidate: &Candidate, fence: Fence, at: Now) -> Option<Offer> {
        let place = self.place_at(candidate)?;
        let request = place.request(place.channel()?)?;
        let grant = Grant::new(None, request.mode, request.ttl, fence, at);
        Offer::new(candidate.place, place, request, grant)
    }

    /// Grants all requests at the place of a candidate. The last one says for how long. The caller
    /// carries out the effect of its grant at each key, in the mode of that key, and serves the
    /// key. Empty where nobody listens any more.
    pub fn grant_candidate(
        &mut self,
        candidate: &Candidate,
        fence: Fence,
        at: Now,
    ) -> Vec<Granted<L>> {
        let id = self.place_at(candidate).map(|_| candidate.place);
        let grant = |last: &Request<L>| Grant::new(None, last.mode, last.ttl, fence, at);
        let granted = id.map(|id| self.by_rules(|book| grant::grant_claim(book, id, grant)));
        granted.unwrap_or_default()
    }

    /// Ends the place of a candidate that can never be granted.
    pub fn end_candidate(&mut self, candidate: &Candidate) -> Vec<Removed<L>> {
        match self.place_at(candidate) {
            Some(_) => self.end(candidate.place),
            None => Vec::new(),
        }
    }

    fn place_at(&self, candidate: &Candidate) -> Option<&Place<L>> {
        let place = self.book.place(candidate.place);
        place.filter(|place| place.ticket == candidate.ticket)
    }
}
