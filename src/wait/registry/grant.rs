//! Locks are passed on.
//!
//! A place for one key is granted where its key is served ([`Registry::grant_next`]). A place for
//! several keys stands in the queue of each, with one ticket. When its turn comes at one of them,
//! serving that key notes it as a *candidate*. Before the step ends, the caller takes the
//! candidates ([`Registry::take_candidate`]) and opens the keys of each, one after the other. If it
//! is the candidate's turn at all of them ([`Registry::turn_of`]), the caller has it granted
//! ([`Registry::grant_candidate`]). If not, nothing changes: the key that stops it will be served
//! when that ends, and notes it again.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::ending::ChannelRequest;
use super::leave::{Removed, Why};
use super::{Leaving, Registry};
use crate::lock::{Fence, FenceClock, Grant, Lock, Now, Refusal, Token, TokenBuf};
use crate::wait::key_ref::KeyRef;
use crate::wait::keys::{Several, Wanted};
use crate::wait::lost::Delivery;
use crate::wait::place::{Place, PlaceId, Ticket};
use crate::wait::queue::Next;
use crate::wait::request::{Listener, Request, Seq};

/// What [`Registry::grant_next`] has done.
#[derive(Debug)]
pub enum Step<L> {
    /// A client has a hold. The caller carries out the effect of [`Granted::grant`].
    Granted(Granted<L>),
    /// A channel is to be told of a hold. The caller publishes it, and then calls
    /// [`Registry::heard`] or [`Registry::unheard`].
    Offered(Offer),
    /// Nobody has listened to its channel, so it is to end: see [`Registry::end_unheard`].
    Unheard(ChannelRequest),
    /// It can never be granted here.
    Refused(Removed<L>, Refusal),
    /// It is next, and takes this result in place of a hold. The caller looks whether it exists,
    /// and asks again.
    Asks(Rc<[u8]>),
}

/// What a grant depends on beside the lock.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// No lease is longer, in milliseconds.
    pub longest_ms: u64,
    /// A result that does not exist, as was just seen.
    pub absent: Option<&'a [u8]>,
}

impl Terms<'_> {
    /// Any lease, and no result.
    pub const ANY: Self = Self {
        longest_ms: u64::MAX,
        absent: None,
    };
}

/// A request that was granted.
#[derive(Debug)]
pub struct Granted<L> {
    /// The request.
    pub removed: Removed<L>,
    /// What it was granted, at the only key or the first one.
    pub grant: Grant,
    /// For how long a new hold stays if nobody hears of it (KEEP), in milliseconds.
    keep_ms: u32,
}

impl<L> Granted<L> {
    /// Whether a channel was told of it before it was made.
    pub const fn is_for_channel(&self) -> bool {
        matches!(self.removed.listener, Some(Listener::Channel(_)))
    }

    /// The client, and what goes to it with the reply. `None` where a channel has heard.
    pub fn into_delivery(self) -> Option<(L, Delivery)> {
        let Some(Listener::Client(client)) = self.removed.listener else {
            return None;
        };
        let grant = Delivery {
            token: self.removed.token,
            fence: self.grant.hold.fence,
            keys: self.removed.keys,
            is_new: !self.grant.had_it,
            keep_ms: self.keep_ms,
            bound_to: self.removed.linger.map(|linger| linger.client),
        };
        Some((client, grant))
    }
}

/// A hold that a channel is to be told of. It is not given yet.
#[derive(Debug)]
pub struct Offer {
    /// The channel.
    pub channel: Rc<[u8]>,
    /// The key, or the first of several.
    pub key_ref: KeyRef,
    /// For whom.
    pub token: TokenBuf,
    /// What it is.
    pub grant: Grant,
    /// The request, which ends where nobody has received the message.
    pub request: ChannelRequest,
    ticket: Ticket,
}

impl Offer {
    fn new<L>(
        id: PlaceId,
        place: &Place<L>,
        (seq, request): (Seq, &Request<L>),
        grant: Grant,
    ) -> Option<Self> {
        let Listener::Channel(channel) = &request.listener else {
            return None;
        };
        Some(Self {
            channel: Rc::clone(channel),
            key_ref: place.keys.first().clone(),
            token: TokenBuf::from(place.token.text().as_token()),
            grant,
            request: ChannelRequest { place: id, seq },
            ticket: place.ticket,
        })
    }
}

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

/// One key.
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
        if self.endings.hold_back(key) {
            return None;
        }
        let (id, seq) = loop {
            let next = self.queues.next(key, &self.places, lock, now)?;
            if let Next::Grant(id, _) | Next::Deadlock(id, _) = next {
                let result = self.results.of_place(id);
                if let Some(result) = result.filter(|result| Some(&***result) != terms.absent) {
                    return Some(Step::Asks(result.clone()));
                }
            }
            match next {
                Next::Grant(id, seq) => break (id, seq),
                Next::Several(id) => {
                    if let Some(place) = self.places.get(id) {
                        if self.is_admitted(id, place, key, lock, now) {
                            self.step.candidates.insert((place.ticket, id));
                        }
                    }
                    return None;
                }
                Next::Deadlock(id, None) => drop(self.end(id)),
                Next::Deadlock(id, Some(seq)) => {
                    let removed = self.leave(id, seq, Why::Decided)?;
                    return Some(Step::Refused(removed, Refusal::Deadlock));
                }
            }
        };
        let at = granted_at(now);
        let place = self.places.get(id)?;
        let request = place.request(seq)?;
        let decided = match request.ttl().ms() <= terms.longest_ms {
            true => place.decide(request, lock, at, fences),
            false => Err(Refusal::TtlTooLong),
        };
        let grant = match decided {
            Ok(grant) => grant,
            Err(refusal @ (Refusal::FencesExhausted | Refusal::TtlTooLong)) => {
                let removed = self.leave(id, seq, Why::Decided)?;
                return Some(Step::Refused(removed, refusal));
            }
            Err(_) => return None,
        };
        if let Some(offer) = Offer::new(id, place, (seq, request), grant) {
            if self.endings.has(&offer.channel, seq) || self.is_lost(seq) {
                return Some(Step::Unheard(offer.request));
            }
            return Some(Step::Offered(offer));
        }
        let keep_ms = request.keep_ms;
        Some(Step::Granted(Granted {
            removed: self.leave(id, seq, Why::Decided)?,
            grant,
            keep_ms,
        }))
    }

    /// Somebody has received what was published: the grant is made. The caller carries out its
    /// effect. `None` when the request has left meanwhile.
    pub fn heard(&mut self, offer: Offer) -> Option<Granted<L>> {
        let ChannelRequest { place, seq } = offer.request;
        let at = self.places.get(place);
        at.filter(|at| at.ticket == offer.ticket)?;
        Some(Granted {
            removed: self.leave(place, seq, Why::Decided)?,
            grant: offer.grant,
            keep_ms: 0,
        })
    }
}

/// Several keys.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// The next place for several keys that may be granted: as far as the queues say, it is the
    /// first one in all. The oldest comes first.
    pub fn take_candidate(&mut self) -> Option<Candidate> {
        while let Some((ticket, id)) = self.step.candidates.pop_first() {
            if self.is_behind() {
                let place = self.places.get(id);
                let keys: Vec<_> = place.into_iter().flat_map(Place::keys).cloned().collect();
                keys.iter().for_each(|key| self.follow_changes(key));
            }
            let place = self.places.get(id).filter(|place| place.ticket == ticket);
            let Some((place, several)) = place.and_then(|p| Some((p, p.keys.several()?))) else {
                continue;
            };
            let may_be_turn_at = |one: &Wanted| {
                let queue = self.queues.of(&one.key_ref);
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
    pub fn turn_of(
        &mut self,
        candidate: &Candidate,
        key: &KeyRef,
        lock: Option<&Lock>,
        now: Now,
    ) -> TurnAt {
        self.follow_changes(key);
        if self.endings.hold_back(key) {
            return TurnAt::Nobody;
        }
        match self.queues.next(key, &self.places, lock, now) {
            Some(Next::Several(id)) if id == candidate.place => match self.place_at(candidate) {
                Some(place) if self.is_admitted(id, place, key, lock, now) => TurnAt::Its,
                _ => TurnAt::Nobody,
            },
            Some(Next::Several(_)) | None => TurnAt::Nobody,
            Some(Next::Grant(..) | Next::Deadlock(..)) => TurnAt::Other,
        }
    }

    /// Ends the requests of a candidate for longer leases than `longest_ms`.
    pub fn end_too_long(&mut self, candidate: &Candidate, longest_ms: u64) -> Vec<Removed<L>> {
        let all = self.place_at(candidate).into_iter().flat_map(Place::iter);
        let too_long = all.filter(|(_, request)| request.ttl().ms() > longest_ms);
        let too_long: Vec<Seq> = too_long.map(|(seq, _)| seq).collect();
        let leave = |seq| self.leave(candidate.place, seq, Why::Decided);
        too_long.into_iter().filter_map(leave).collect()
    }

    /// Ends the requests of a candidate whose connection is lost. The caller marks the key.
    pub fn end_lost(&mut self, candidate: &Candidate, leaving: Leaving) -> Vec<Removed<L>> {
        if self.endings.lost.is_empty() {
            return Vec::new(); // The usual case.
        }
        let all = self.place_at(candidate).into_iter().flat_map(Place::iter);
        let lost = all.filter(|(seq, _)| self.is_lost(*seq));
        let lost: Vec<Seq> = lost.map(|(seq, _)| seq).collect();
        let leave = |seq| self.leave(candidate.place, seq, Why::Ungranted(leaving));
        lost.into_iter().filter_map(leave).collect()
    }

    /// The hold that the channel at the place of a candidate is to be told of. The caller publishes
    /// it first. If nobody has received it, the caller calls [`Registry::unheard`], ends the
    /// request, and grants the candidate to the clients that are left.
    pub fn offer_candidate(&self, candidate: &Candidate, fence: Fence, at: Now) -> Option<Offer> {
        let place = self.place_at(candidate)?;
        let seq = place.channel()?;
        let request = place.request(seq)?;
        let grant = Grant::new(None, request.mode(), request.ttl(), fence, at);
        Offer::new(candidate.place, place, (seq, request), grant)
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
        let place = self.place_at(candidate);
        let Some((place, (_, last))) = place.and_then(|place| Some((place, place.iter().last()?)))
        else {
            return Vec::new();
        };
        let grant = Grant::new(None, last.mode(), last.ttl(), fence, at);
        let requests = place.iter();
        let requests: Vec<_> = requests.map(|(seq, one)| (seq, one.keep_ms)).collect();
        let leave = |(seq, keep_ms)| {
            Some(Granted {
                removed: self.leave(candidate.place, seq, Why::Decided)?,
                grant,
                keep_ms,
            })
        };
        requests.into_iter().filter_map(leave).collect()
    }

    /// Ends the place of a candidate that can never be granted.
    pub fn end_candidate(&mut self, candidate: &Candidate) -> Vec<Removed<L>> {
        match self.place_at(candidate) {
            Some(_) => self.end(candidate.place),
            None => Vec::new(),
        }
    }

    /// Leaves a candidate to a later step.
    pub fn put_off_candidate(&mut self, candidate: &Candidate) {
        let first = &candidate.several.first().key_ref;
        self.mark(first.db, &first.name);
    }

    /// Whether the turn of a place for several keys that stands at the head of the queue of one of
    /// them has come there.
    fn is_admitted(
        &self,
        id: PlaceId,
        place: &Place<L>,
        key: &KeyRef,
        lock: Option<&Lock>,
        now: Now,
    ) -> bool {
        let (mode, queue) = (place.mode_among(&key.name), self.queues.of(key));
        mode.zip(queue)
            .is_some_and(|(mode, queue)| queue.admits_several(id, mode, &self.places, lock, now))
    }

    fn place_at(&self, candidate: &Candidate) -> Option<&Place<L>> {
        let place = self.places.get(candidate.place);
        place.filter(|place| place.ticket == candidate.ticket)
    }
}
