//! Requests come.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use smallvec::SmallVec;

use super::leave::grace_end;
use super::Registry;
use crate::lock::{Mode, Refusal, Token, Ttl};
use crate::planted::planted;
use crate::rules::keys::Keys;
use crate::rules::place::Linger;
use crate::rules::place::{Kept, Listener, Place, PlaceId, Request, Seq, Stands, Ticket, NEVER};
use crate::rules::{turn, Book};

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
    Waits(PlaceBefore),
    /// It does not wait, and its token has a place without a listener.
    Kept(PlaceBefore),
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
            Self::Waits(PlaceBefore::Absent) | Self::Kept(PlaceBefore::Absent) | Self::Ended
        )
    }
}

/// The place at which a request has arrived, as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceBefore {
    /// There was none. At one of its keys nobody ahead of the new one stops it, but the lock may.
    NewHead,
    /// There was none, and others stand ahead of the new one.
    New,
    /// Nobody listened there.
    Absent,
    /// Others of its token wait there.
    Joined,
}

impl PlaceBefore {
    /// Whether the keys have to be served. A place that has changed may matter to others, or be
    /// next, wherever it stands.
    const fn must_serve(self) -> bool {
        !matches!(self, Self::New)
    }
}

/// How a request has come, so that it can leave as if it never had ([`Registry::take_back`]).
#[derive(Debug)]
pub struct Came<L> {
    id: PlaceId,
    ticket: Ticket,
    seq: Seq,
    at: PlaceBefore,
    stood: Stands,
    /// The request of the channel in whose place it came.
    replaced: Option<Replaced<L>>,
}

#[derive(Debug)]
struct Replaced<L> {
    request: Request<L>,
    linger: Option<Linger>,
    result: Option<Rc<[u8]>>,
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes a request that was refused with [`Refusal::Busy`] or [`Refusal::BusyUpgrade`], and
    /// whose token does not wait for any of the keys otherwise ([`Registry::waits_otherwise`]). It
    /// waits, or leaves a place, or does neither.
    pub fn enter(&mut self, keys: &Keys, new: NewRequest<'_, L>) -> (Entered, Option<Came<L>>) {
        let own = self.place_of(keys, new.token);
        let place = own.and_then(|id| self.book.place(id));
        let is_absent = place.is_none_or(Place::is_absent);
        let stood = place.map_or(Stands::InLine, |place| place.stands);
        // An absent place goes on by the words of this request. A message names the first key of
        // the last request for one.
        let is_channel = matches!(new.listener, Some(Listener::Channel(_)));
        let takes_words = place.is_some() && keys.several().is_some() && (is_absent || is_channel);
        let keep_ms = new.keep_ms.unwrap_or(0);
        if new.listener.is_none() {
            match (own, is_absent, keep_ms) {
                (_, false, _) | (None, _, 0) => return (Entered::No, None),
                (Some(id), _, 0) => {
                    self.end(id);
                    return (Entered::Ended, None);
                }
                _ => {}
            }
        }
        let id = own.unwrap_or_else(|| self.new_place(keys, &new));
        if takes_words {
            self.book.rename(id, keys);
        }
        let at = match (own, is_absent) {
            (Some(_), true) => PlaceBefore::Absent,
            (Some(_), false) => PlaceBefore::Joined,
            (None, _) => PlaceBefore::New,
        };
        let (refusal, waits) = (new.refusal, new.listener.is_some());
        let (seq, replaced) = match waits {
            true => self.add_request(id, new),
            false => (self.keep_by(id, &new), None),
        };
        if refusal == Refusal::BusyUpgrade {
            self.book
                .change(id, |place| place.stands = Stands::Converts);
        }
        let at = match at {
            PlaceBefore::New if self.is_head(id) => PlaceBefore::NewHead,
            at => at,
        };
        let ticket = self
            .book
            .place(id)
            .map_or(Ticket::END, |place| place.ticket);
        let came = Came {
            id,
            ticket,
            seq,
            at,
            stood,
            replaced,
        };
        match waits {
            true => (Entered::Waits(at), Some(came)),
            false => (Entered::Kept(at), Some(came)),
        }
    }

    /// Has a request leave as if it had never come, because its wait closes a cycle. Only its
    /// token's absent place ends, as with every refusal for good. What listens for it is told by
    /// the caller. `None` if it waits no more; otherwise whether the caller has to serve the keys.
    pub fn take_back(&mut self, came: Came<L>) -> Option<bool> {
        let Came { id, seq, at, .. } = came;
        let place = self.book.place(id);
        let place = place.filter(|place| place.ticket == came.ticket)?;
        let is_there = match seq {
            NOBODY => place.is_absent(),
            seq => place.request(seq).is_some(),
        };
        if !is_there {
            return None;
        }
        if !matches!(at, PlaceBefore::Joined) {
            self.end(id);
            return Some(at == PlaceBefore::Absent);
        }
        let request = self.book.change(id, |place| place.take(seq)).flatten()?;
        self.forget(id, seq, &request);
        self.book.results.take(id, seq);
        if let Some(replaced) = came.replaced {
            self.put_back(id, replaced);
        }
        // The table of results follows, too.
        self.book.change(id, |place| place.stands = came.stood);
        Some(false)
    }

    fn put_back(&mut self, id: PlaceId, replaced: Replaced<L>) {
        let request = replaced.request;
        let (seq, listener) = (request.seq, request.listener.clone());
        if let Some(user) = request.user {
            self.book.load.users.add(user);
        }
        self.book.change(id, |place| {
            let at = place.requests.partition_point(|other| other.seq < seq);
            place.requests.insert(at, request);
        });
        self.book
            .listeners
            .insert(id, seq, listener, replaced.linger);
        if let Some(result) = replaced.result {
            self.book.results.add(id, seq, &result);
        }
    }

    /// Whether nobody ahead of a place stops it at one of its keys.
    fn is_head(&self, id: PlaceId) -> bool {
        let Some(place) = self.book.place(id) else {
            return false;
        };
        place.ids.iter().any(|key| {
            let first = turn::first_but_shares(&self.book, *key);
            first.is_some_and(|first| first.ticket == place.ticket)
        })
    }

    /// Has a place stay without a listener, by the words of a request that does not wait.
    fn keep_by(&mut self, id: PlaceId, new: &NewRequest<'_, L>) -> Seq {
        let user = new.user.map(|name| self.book.load.users.number(name));
        let (mode, ms, change) = (new.mode, new.keep_ms.unwrap_or(0), self.agenda.last_change);
        self.book.results.keep(id, new.result.map(Rc::from));
        self.book.change(id, |place| {
            place.kept = Some(Kept { mode, ms });
            place.user = user;
            place.until_us = grace_end(new.now_us, ms);
            place.since_change = change;
        });
        NOBODY
    }

    /// Adds a request to a place. The channel that was named last is the one that hears.
    fn add_request(&mut self, id: PlaceId, new: NewRequest<'_, L>) -> (Seq, Option<Replaced<L>>) {
        let seq = self.book.listeners.next_seq();
        let Some(listener) = new.listener else {
            return (seq, None);
        };
        let user = new.user.map(|name| self.book.load.users.number(name));
        if let Some(user) = user {
            self.book.load.users.add(user);
        }
        let (listener, before) = match listener {
            Listener::Channel(name) => {
                let name = self.book.listeners.shared(name);
                let before = self.book.place(id).and_then(Place::channel);
                (Listener::Channel(name), before)
            }
            client => (client, None),
        };
        let request = Request {
            seq,
            listener: listener.clone(),
            mode: new.mode,
            ttl: new.ttl,
            times_out_at_us: new.times_out_at_us.unwrap_or(NEVER),
            keep_ms: new.keep_ms.unwrap_or(0),
            user,
            is_server_generated: new.is_server_generated,
        };
        if let Some(result) = new.result {
            self.book.results.add(id, seq, result);
        }
        let replaced = self.book.change(id, |place| {
            let replaced = before.and_then(|before| place.take(before));
            match &replaced {
                // The place was never absent in between.
                Some(_) => place.requests.push(request),
                None => place.add(request, new.now_us),
            }
            replaced
        });
        let replaced = replaced.flatten().map(|before| Replaced {
            linger: self.forget(id, before.seq, &before),
            result: self.book.results.take(id, before.seq),
            request: before,
        });
        self.book.listeners.insert(id, seq, listener, new.linger);
        (seq, replaced)
    }

    /// Makes a place, which has to be kept or listened at next.
    fn new_place(&mut self, keys: &Keys, new: &NewRequest<'_, L>) -> PlaceId {
        self.last_ticket = match planted("the-newest-first") {
            true => self.last_ticket.checked_sub(1).unwrap_or(u64::MAX >> 1),
            false => self.last_ticket.saturating_add(1),
        };
        let place = Place {
            ticket: Ticket(self.last_ticket),
            keys: keys.clone(),
            ids: SmallVec::new(),
            token: new.token.into(),
            hash: self.book.hash_of(new.token),
            since_us: new.now_us,
            requests: SmallVec::new(),
            kept: None,
            until_us: NEVER,
            since_change: 0,
            user: None,
            uncounted_us: new.now_us,
            stands: Stands::InLine,
        };
        self.book.add(place)
    }
}

/// No request has this number.
const NOBODY: Seq = Seq(0);
