//! Requests come.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::leave::grace_end;
use super::Registry;
use crate::lock::{Mode, Refusal, Token, Ttl};
use crate::planted::planted;
use crate::wait::bindings::Linger;
use crate::wait::keys::Keys;
use crate::wait::place::{Place, PlaceId, Ticket};
use crate::wait::request::{Listener, Request, Words, NEVER};

/// A request that was not granted at once.
#[derive(Debug)]
pub struct NewRequest<'a, L> {
    /// For whom.
    pub token: Token<'a>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// For how long it will hold, counted from the grant.
    pub ttl: Ttl,
    /// Whatever is told when the wait ends; `None`: the request does not wait.
    pub listener: Option<Listener<L>>,
    /// On the monotonic clock; `None` is never.
    pub times_out_at_us: Option<u64>,
    /// For how long the place outlives the request (KEEP), in milliseconds; `None` and 0 are not at
    /// all.
    pub keep_ms: Option<u32>,
    /// Whether the server has generated the token, which the reply then carries.
    pub is_server_generated: bool,
    /// What its hold will be bound to.
    pub linger: Option<Linger>,
    /// The result that it takes in place of a hold (LOCK.ONCE).
    pub result: Option<&'a [u8]>,
    /// The user against whose share it counts; `None` is nobody.
    pub user: Option<&'a [u8]>,
    /// Why it was not granted.
    pub refusal: Refusal,
    /// Now, on the monotonic clock.
    pub now_us: u64,
}

/// What has become of a request that was not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It waits.
    Waits(At),
    /// It does not wait, and its token has a place without a listener.
    Kept(At),
    /// It does not wait, and the place without a listener that its token had has ended: the one
    /// behind may be next.
    Ended,
    /// It does not wait, and nothing has changed.
    No,
}

impl Entered {
    /// Whether the caller has to serve the keys: somebody may be next, or other instants matter
    /// now.
    pub const fn must_serve(self) -> bool {
        match self {
            Self::Waits(at) | Self::Kept(at) => at.must_serve(),
            Self::Ended => true,
            Self::No => false,
        }
    }

    /// Whether it has found a place at which nobody has listened.
    pub const fn is_resumed(self) -> bool {
        matches!(
            self,
            Self::Waits(At::Absent) | Self::Kept(At::Absent) | Self::Ended
        )
    }
}

/// The place at which a request has arrived, as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// There was none. At one of its keys nobody ahead of the new one stops it, but the lock may.
    NewHead,
    /// There was none, and others stand ahead of the new one.
    New,
    /// Nobody listened there.
    Absent,
    /// Others of its token wait there.
    Joined,
}

impl At {
    /// Whether the keys have to be served. A place that has changed may matter to others, or be
    /// next, wherever it stands.
    const fn must_serve(self) -> bool {
        !matches!(self, Self::New)
    }
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes a request that was refused with [`Refusal::Busy`] or [`Refusal::BusyUpgrade`], and
    /// whose token does not wait for any of the keys otherwise ([`Registry::waits_otherwise`]). It
    /// waits, or leaves a place, or does neither.
    pub fn enter(&mut self, keys: &Keys, new: NewRequest<'_, L>) -> Entered {
        let own = self.place_of(keys, new.token);
        let place = own.and_then(|id| self.places.get(id));
        let is_absent = place.is_none_or(Place::is_absent);
        // An absent place goes on by the words of this request. A message names the first key of
        // the last request for one.
        let is_channel = matches!(new.listener, Some(Listener::Channel(_)));
        let takes_words = place.is_some() && keys.several().is_some() && (is_absent || is_channel);
        let keep_ms = new.keep_ms.unwrap_or(0);
        if new.listener.is_none() {
            match (own, is_absent, keep_ms) {
                (_, false, _) | (None, _, 0) => return Entered::No,
                (Some(id), _, 0) => {
                    self.end(id);
                    return Entered::Ended;
                }
                _ => {}
            }
        }
        let Some(id) = own.or_else(|| self.new_place(keys, &new)) else {
            return Entered::No;
        };
        let (refusal, waits) = (new.refusal, new.listener.is_some());
        self.add_words(id, new);
        if takes_words {
            let keys = keys.map(|key| self.queues.shared(key));
            if let Some(place) = self.places.get_mut(id) {
                place.keys = keys;
            }
        }
        if refusal == Refusal::BusyUpgrade {
            self.queues.may_upgrade = true;
            let queue = self.queues.of_mut(keys.first());
            if let (Some(queue), Some(place)) = (queue, self.places.get(id)) {
                queue.upgrade(id, place);
            }
        }
        let at = match (own, is_absent) {
            (Some(_), true) => At::Absent,
            (Some(_), false) => At::Joined,
            (None, _) if self.is_head(id, keys) => At::NewHead,
            (None, _) => At::New,
        };
        match waits {
            true => Entered::Waits(at),
            false => Entered::Kept(at),
        }
    }

    /// Whether nobody ahead of a place stops it at one of its keys.
    fn is_head(&self, id: PlaceId, keys: &Keys) -> bool {
        keys.iter().any(|key| {
            let queue = self.queues.of(key);
            queue.and_then(|queue| queue.candidate(&self.places)) == Some(id)
        })
    }

    /// Adds a request to its place, or what it has said if it does not wait.
    fn add_words(&mut self, id: PlaceId, new: NewRequest<'_, L>) {
        let keep_ms = new.keep_ms.unwrap_or(0);
        let user = new.user.and_then(|name| self.load.users.number(name));
        let Some(listener) = new.listener else {
            let (mode, change) = (new.mode, self.changes.last);
            self.change(id, |place| {
                place.keep(mode, keep_ms);
                place.count_against(user);
                place.stay_until(grace_end(new.now_us, keep_ms), change);
            });
            self.results.keep(id, new.result.map(Rc::from));
            self.follow_results(id);
            return;
        };
        let listener = match listener {
            Listener::Channel(name) => Listener::Channel(self.listeners.channels.shared(name)),
            client => client,
        };
        let seq = self.listeners.next_seq();
        let words = Words::new(new.mode, new.is_server_generated);
        let mut request = Request::new(listener.clone(), seq, new.ttl, words);
        request.times_out_at_us = new.times_out_at_us.unwrap_or(NEVER);
        (request.keep_ms, request.user) = (keep_ms, user);
        if let Some(user) = user {
            self.load.users.add(user);
        }
        let channel = self.places.get(id).and_then(Place::channel);
        let replaced = self.change(id, |place| place.add(request, new.now_us));
        let replaced = replaced.flatten();
        // The channel that was named last is the one that hears.
        if let (Some(seq), Some(before)) = (channel, replaced) {
            self.forget(id, seq, &before);
            self.results.take(id, seq);
        }
        self.listeners.insert(id, seq, listener, new.linger);
        if let Some(result) = new.result {
            self.results.add(id, seq, result);
        }
        self.follow_results(id);
    }

    /// Makes a place, which has to be kept or listened at next.
    fn new_place(&mut self, keys: &Keys, new: &NewRequest<'_, L>) -> Option<PlaceId> {
        self.last_ticket = match planted("the-newest-first") {
            true => self.last_ticket.checked_sub(1).unwrap_or(u64::MAX >> 1),
            false => self.last_ticket.saturating_add(1),
        };
        let ticket = Ticket(self.last_ticket);
        let keys = keys.map(|key| self.queues.shared(key));
        let mut place = Place::new(ticket, keys.clone(), new.token.into());
        place.since_us = new.now_us;
        place.keep(new.mode, 0);
        let id = self.places.insert(place)?;
        self.load.add(self.places.get(id)?);
        for key in keys.iter() {
            let change = self.changes.last;
            self.queues.enter(key.clone(), id, &self.places, change);
        }
        self.oldest.note(id, ticket);
        self.link(id);
        Some(id)
    }
}
