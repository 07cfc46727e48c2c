//! Requests for several keys: all of them in one step, or none.
//!
//! A place for several keys stands in the queue of each, with one ticket. When its turn comes at
//! one of them, serving that key notes it as a *candidate*. Before the step ends, the caller takes
//! the candidates ([`Registry::take_candidate`]) and opens the keys of each, one after the other.
//! If it is the candidate's turn at all of them ([`Registry::is_turn_of`]), the caller has it
//! granted ([`Registry::grant_several`]). If not, nothing changes: the key that stops it will be
//! served when that ends, and notes it again.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::leaving::{grace_end, Why};
use super::{Entered, Leaving, NewRequest, Offer, Registry, Removed};
use crate::lock::{Deadline, Effect, Fence, Hold, Lock, Mode, Now, Since, Token, TokenBuf};
use crate::wait::bindings::Linger;
use crate::wait::delivery::{Grant, Kept};
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId, Ticket};
use crate::wait::queue::Next;
use crate::wait::request::Listener;
use crate::wait::several::{Several, Standing, Wanted};

/// A place for several keys whose turn has come at one of them, and perhaps at all.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub(super) place: PlaceId,
    pub(super) ticket: Ticket,
    pub(super) token: TokenBuf,
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
pub enum Turn {
    /// That of the candidate, and the lock admits it.
    Its,
    /// That of another request. The key is to be served.
    Other,
    /// Nobody's.
    Nobody,
}

/// The requests for several keys that are granted together: all those at one place.
#[derive(Debug)]
pub struct GrantedSeveral<L> {
    /// The keys.
    pub several: Rc<Several>,
    /// Whose they are now.
    pub token: TokenBuf,
    /// The hold of each key.
    pub hold: Hold,
    /// When it was granted.
    pub at: Now,
    /// The requests. Each listener is told of the grant that stands beside it; there is none where
    /// a channel has heard.
    pub requests: Vec<(Removed<L>, Option<Grant>)>,
}

impl<L> GrantedSeveral<L> {
    /// What the holds are bound to: the last request says that, too.
    pub fn linger(&self) -> Option<Linger> {
        let (last, _) = self.requests.last()?;
        last.linger
    }

    /// The change of the lock of one of the keys.
    pub fn effect(&self, mode: Mode) -> Effect<'_> {
        Effect::Hold {
            now_ms: self.at.ms(),
            mode,
            token: self.token.as_token(),
            hold: self.hold,
        }
    }
}

/// Requests come.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// What the places of a token say about its request for these keys.
    pub fn standing(&self, several: &Several, token: Token<'_>) -> Standing {
        let id = self.first_place_of(several, token);
        let Some(place) = id.and_then(|id| self.places.get(id)) else {
            return Standing::None;
        };
        match &place.several {
            Some(own) if place.is_absent() && own.has_keys_of(several) => Standing::Absent,
            Some(own) if own.is_same_as(several) => Standing::Listens,
            _ => Standing::Other,
        }
    }

    /// Whether there is any place for several keys.
    pub const fn has_several(&self) -> bool {
        self.places_for_several > 0
    }

    /// Whether a token waits for a key together with others.
    pub fn waits_for_several(&self, key: &KeyRef, token: Token<'_>) -> bool {
        self.keys_of_place(key, token).is_some()
    }

    /// Takes a request for several keys that cannot be granted at once, and whose [`Standing`] is
    /// not [`Standing::Other`]. Its mode is that of the first key. The caller serves all keys,
    /// unless nothing has changed.
    pub fn enter_several(&mut self, several: &Rc<Several>, new: NewRequest<'_, L>) -> Entered {
        let own = self.first_place_of(several, new.token);
        let place = own.and_then(|id| self.places.get(id));
        let is_channel = matches!(new.listener, Some(Listener::Channel(_)));
        // An absent place goes on by the words of this request. A message names the first key of
        // the last request for one.
        let takes_words = place.is_some_and(|place| place.is_absent() || is_channel);
        let first = several.first().key_ref.clone();
        let (id, entered) = match self.take_place(own, &first, Some(several), new) {
            Ok(taken) => taken,
            Err(entered) => return entered,
        };
        if takes_words {
            let all = several.map(|one| self.shared(one));
            if let Some(place) = self.places.get_mut(id) {
                place.key_ref.clone_from(&all.first().key_ref);
                place.several = Some(Rc::new(all));
            }
        }
        entered
    }

    /// Ends the place at which nobody listens that a token has for these keys, as it was just
    /// granted them, or asked again without KEEP. Whether there was one, and since when on the
    /// monotonic clock. The caller serves the keys.
    pub fn resume_several(&mut self, several: &Several, token: Token<'_>) -> Option<u64> {
        let id = self.first_place_of(several, token)?;
        let place = self.places.get(id).filter(|place| place.is_absent())?;
        let is_it = |own: &Rc<Several>| own.has_keys_of(several);
        place.several.as_ref().filter(|own| is_it(own))?;
        let since_us = place.since_us;
        self.end(id);
        Some(since_us)
    }

    /// The keys of a place that a token has for this key and others. `None` where it has none.
    pub fn keys_of_place(&self, key: &KeyRef, token: Token<'_>) -> Option<Rc<Several>> {
        let id = self.place_of_token(key, token)?;
        self.places.get(id)?.several.clone()
    }

    /// A lost grant gives its place back as a whole, unless the token has another place at one of
    /// the keys by now.
    pub(super) fn restore_several(&mut self, kept: Kept, token: Token<'_>, leaving: Leaving) {
        let Some(several) = kept.several.clone() else {
            return;
        };
        for one in several.iter() {
            self.follow_changes(&one.key_ref);
        }
        if self.first_place_of(&several, token).is_some() {
            return;
        }
        let (keep_ms, change) = (kept.keep_ms, self.changes.last);
        if let Some(id) = self.put_back(kept, token, leaving) {
            self.change(id, |place| {
                place.stay_until(grace_end(leaving.now_us, keep_ms), change);
            });
        }
        for one in several.iter() {
            self.mark(one.key_ref.db, &one.key_ref.name);
        }
    }

    /// The first place that a token has for any of the keys.
    fn first_place_of(&self, several: &Several, token: Token<'_>) -> Option<PlaceId> {
        if self.is_empty() {
            return None; // The usual case.
        }
        let mut keys = several.iter().map(|one| &one.key_ref);
        keys.find_map(|key| self.place_of_token(key, token))
    }
}

/// The end of a step.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Has a key served before the step ends.
    pub fn serve_later(&mut self, key: KeyRef) {
        self.unserved.push(key);
    }

    /// A key that is to be served before the step ends. Keys come before candidates.
    pub fn take_unserved(&mut self) -> Option<KeyRef> {
        self.unserved.pop()
    }

    /// Has the keys marked that are to be served, because the step cannot go on.
    pub fn mark_unserved(&mut self) {
        while let Some(key) = self.unserved.pop() {
            self.mark(key.db, &key.name);
        }
    }

    /// Leaves a candidate to a later step.
    pub fn put_off_candidate(&mut self, candidate: &Candidate) {
        let first = &candidate.several.first().key_ref;
        self.mark(first.db, &first.name);
    }

    /// The next place for several keys that may be granted: as far as the queues say, it is the
    /// first one in all. The oldest comes first.
    pub fn take_candidate(&mut self) -> Option<Candidate> {
        while let Some((ticket, id)) = self.candidates.pop_first() {
            if self.is_behind() {
                let place = self.places.get(id);
                let keys: Vec<_> = place.into_iter().flat_map(Place::keys).cloned().collect();
                keys.iter().for_each(|key| self.follow_changes(key));
            }
            let place = self.places.get(id).filter(|place| place.ticket == ticket);
            let Some((place, several)) = place.and_then(|p| Some((p, p.several.as_ref()?))) else {
                continue;
            };
            let may_be_turn_at = |one: &Wanted| {
                let queue = self.queue(one.key_ref.db, &one.key_ref.name);
                queue.is_some_and(|queue| queue.may_be_turn_of(place, &self.places))
            };
            if several.iter().all(may_be_turn_at) {
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
    pub fn is_turn_of(
        &mut self,
        candidate: &Candidate,
        key: &KeyRef,
        lock: Option<&Lock>,
        now: Now,
    ) -> Turn {
        self.follow_changes(key);
        let queues = self.queues.get_mut(&key.db);
        let here = queues.and_then(|queues| queues.get_mut(&key.name));
        let next = here.and_then(|here| {
            let next = here.queue.next(&self.places, lock, now);
            self.may_upgrade |= here.queue.has_upgrades();
            next
        });
        match next {
            Some(Next::Several(id))
                if self.is_there(candidate, id) && self.is_admitted(id, key, lock, now) =>
            {
                Turn::Its
            }
            Some(Next::Several(_)) | None => Turn::Nobody,
            Some(Next::Grant(..) | Next::Deadlock(..)) => Turn::Other,
        }
    }

    /// The hold that the channel at the place of a candidate is to be told of. The caller publishes
    /// it first. If somebody has received it, the candidate is granted. If not, the caller calls
    /// [`Registry::unheard`], and grants it to the clients that are left.
    pub fn offer_several(&self, candidate: &Candidate, fence: Fence, at: Now) -> Option<Offer> {
        let place = self.place_of(candidate)?;
        let seq = place.channel()?;
        let request = place.request(seq)?;
        let Listener::Channel(channel) = &request.listener else {
            return None;
        };
        Some(Offer {
            channel: Rc::clone(channel),
            key_ref: place.key_ref.clone(),
            token: candidate.token.clone(),
            hold: Hold {
                fence,
                deadline: Deadline::after(at, request.ttl),
                since: Since::at(at.ms()),
            },
            at,
            had_it: false,
            place: candidate.place,
            ticket: candidate.ticket,
            seq,
        })
    }

    /// Grants all requests at the place of a candidate. The last one says for how long. The caller
    /// carries out the effect at each key, and serves it. `None` where nobody listens any more.
    pub fn grant_several(
        &mut self,
        candidate: &Candidate,
        fence: Fence,
        at: Now,
        is_heard: bool,
    ) -> Option<GrantedSeveral<L>> {
        let place = self.place_of(candidate)?;
        let (_, last) = place.iter().last()?;
        let hold = Hold {
            fence,
            deadline: Deadline::after(at, last.ttl),
            since: Since::at(at.ms()),
        };
        let is_client = |listener: &Listener<L>| matches!(listener, Listener::Client(_));
        let requests: Vec<_> = place
            .iter()
            .map(|(seq, request)| (seq, self.kept(place, request), is_client(&request.listener)))
            .collect();
        let several = Rc::clone(place.several.as_ref()?);
        let clients = requests.iter().filter(|(.., is_client)| *is_client).count();
        let keys = several.iter().map(|one| &one.key_ref);
        let delivery = self.deliveries.granted_together(keys, fence, clients);
        if is_heard {
            let first = &several.first().key_ref;
            self.deliveries.acknowledge(first.db, &first.name, fence);
        }
        let leave = |(seq, kept, is_client)| {
            let removed = self.leave(candidate.place, seq, Why::Decided)?;
            let grant = delivery.filter(|_| is_client).map(|delivery| Grant {
                token: candidate.token.clone(),
                fence,
                delivery,
                kept,
            });
            Some((removed, grant))
        };
        let requests = requests.into_iter().filter_map(leave).collect();
        for one in several.iter() {
            self.lock_granted(&one.key_ref);
        }
        Some(GrantedSeveral {
            several,
            token: candidate.token.clone(),
            hold,
            at,
            requests,
        })
    }

    /// Ends the place of a candidate that can never be granted.
    pub fn end_candidate(&mut self, candidate: &Candidate) -> Vec<Removed<L>> {
        match self.place_of(candidate) {
            Some(_) => self.end(candidate.place),
            None => Vec::new(),
        }
    }

    pub(super) fn note_candidate(&mut self, id: PlaceId) {
        if let Some(place) = self.places.get(id) {
            self.candidates.insert((place.ticket, id));
        }
    }

    /// Whether the turn of a place for several keys that stands at the head of the queue of one of
    /// them has come there.
    pub(super) fn is_admitted(
        &self,
        id: PlaceId,
        key: &KeyRef,
        lock: Option<&Lock>,
        now: Now,
    ) -> bool {
        let place = self.places.get(id);
        let mode = place.and_then(|place| place.mode_among(&key.name));
        let queue = self.queue(key.db, &key.name);
        mode.zip(queue)
            .is_some_and(|(mode, queue)| queue.admits_several(id, mode, &self.places, lock, now))
    }

    fn is_there(&self, candidate: &Candidate, id: PlaceId) -> bool {
        id == candidate.place && self.place_of(candidate).is_some()
    }

    fn place_of(&self, candidate: &Candidate) -> Option<&Place<L>> {
        let place = self.places.get(candidate.place);
        place.filter(|place| place.ticket == candidate.ticket)
    }
}
