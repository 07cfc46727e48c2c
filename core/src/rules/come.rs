//! Requests come.

use std::rc::Rc;

use super::keys::Keys;
use super::leave::{end, grace_end, place_of};
use super::place::{
    Extra, Kept, Linger, Listener, Place, PlaceId, Request, Seq, Stands, Ticket, NEVER,
};
use super::{turn, BookMut};
use crate::lock::{Mode, Refusal, Token, Ttl};

/// A request that was not granted at once.
#[derive(Debug)]
pub struct NewRequest<'a, L> {
    /// For whom.
    pub token: Token<'a>,
    /// Exclusive, shared or counted.
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

/// How a request has come, so that it can leave as if it never had ([`take_back`]).
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

type Replaced<L> = (Request<L>, Extra);

/// No request has this number.
const NOBODY: Seq = Seq(0);

/// Takes a request that was refused with [`Refusal::Busy`] or [`Refusal::BusyUpgrade`], and whose
/// token does not wait for any of the keys otherwise. It waits, or leaves a place, or does neither.
pub(crate) fn enter<B: BookMut>(
    book: &mut B,
    keys: &Keys,
    mut new: NewRequest<'_, B::Client>,
) -> (Entered, Option<Came<B::Client>>) {
    let own = place_of(book, keys, new.token);
    let place = own.and_then(|id| book.place(id));
    let is_absent = place.is_none_or(Place::is_absent);
    let stood = place.map_or(Stands::InLine, |place| place.stands);
    // An absent place goes on by the words of this request. A message names the first key of the
    // last request for one.
    let is_channel = matches!(new.listener, Some(Listener::Channel(_)));
    let takes_words = place.is_some() && keys.several().is_some() && (is_absent || is_channel);
    let (refusal, waits) = (new.refusal, new.listener.is_some());
    if !waits {
        match (own, is_absent, new.keep_ms.unwrap_or(0)) {
            (_, false, _) | (None, _, 0) => return (Entered::No, None),
            (Some(id), _, 0) => {
                end(book, id);
                return (Entered::Ended, None);
            }
            _ => {}
        }
    }
    let id = own.unwrap_or_else(|| book.open(keys, new.token, new.now_us));
    if takes_words {
        book.rename(id, keys);
    }
    let (seq, replaced) = match new.listener.take() {
        Some(listener) => add_request(book, id, new, listener),
        None => (keep_by(book, id, &new), None),
    };
    if refusal == Refusal::BusyUpgrade {
        book.change(id, |place| place.stands = Stands::Converts);
    }
    let at = match (own, is_absent) {
        (Some(_), true) => PlaceBefore::Absent,
        (Some(_), false) => PlaceBefore::Joined,
        (None, _) if is_head(book, id) => PlaceBefore::NewHead,
        (None, _) => PlaceBefore::New,
    };
    let came = Came {
        id,
        ticket: book.place(id).map_or(Ticket::END, |place| place.ticket),
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

/// Has a request leave as if it had never come, because its wait closes a cycle. Only its token's
/// absent place ends, as with every refusal for good. What listens for it is told by the caller.
/// `None` if it waits no more; otherwise whether the caller has to serve the keys.
pub(crate) fn take_back<B: BookMut>(book: &mut B, came: Came<B::Client>) -> Option<bool> {
    let Came { id, seq, at, .. } = came;
    let place = book.place(id);
    let place = place.filter(|place| place.ticket == came.ticket)?;
    let is_there = match seq {
        NOBODY => place.is_absent(),
        seq => place.request(seq).is_some(),
    };
    if !is_there {
        return None;
    }
    if !matches!(at, PlaceBefore::Joined) {
        end(book, id);
        return Some(at == PlaceBefore::Absent);
    }
    match came.replaced {
        Some(before) => drop(book.put(id, before, Some(seq), Place::put_back)),
        None => drop(book.take(id, seq, false, |_, _| ())),
    }
    book.change(id, |place| place.stands = came.stood);
    Some(false)
}

/// Whether nobody ahead of a place stops it at one of its keys.
fn is_head<B: BookMut>(book: &B, id: PlaceId) -> bool {
    let Some(place) = book.place(id) else {
        return false;
    };
    place.ids.iter().any(|key| {
        let first = turn::first_but_shares(book, *key);
        first.is_some_and(|first| first.ticket == place.ticket)
    })
}

/// Has a place stay without a listener, by the words of a request that does not wait.
fn keep_by<B: BookMut>(book: &mut B, id: PlaceId, new: &NewRequest<'_, B::Client>) -> Seq {
    let user = new.user.map(|name| book.user(name));
    let (mode, ms, change) = (new.mode, new.keep_ms.unwrap_or(0), book.last_change());
    book.keep(id, new.result.map(Rc::from), |place| {
        place.kept = Some(Kept { mode, ms });
        place.user = user;
        place.until_us = grace_end(new.now_us, ms);
        place.since_change = change;
    });
    NOBODY
}

/// Adds a request to a place. The channel that was named last is the one that hears.
fn add_request<B: BookMut>(
    book: &mut B,
    id: PlaceId,
    new: NewRequest<'_, B::Client>,
    listener: Listener<B::Client>,
) -> (Seq, Option<Replaced<B::Client>>) {
    let seq = book.next_seq();
    let before = match listener {
        Listener::Channel(_) => book.place(id).and_then(Place::channel),
        Listener::Client(_) => None,
    };
    let request = Request {
        seq,
        listener,
        mode: new.mode,
        ttl: new.ttl,
        times_out_at_us: new.times_out_at_us.unwrap_or(NEVER),
        keep_ms: new.keep_ms.unwrap_or(0),
        user: new.user.map(|name| book.user(name)),
        is_server_generated: new.is_server_generated,
    };
    let extra = Extra {
        linger: new.linger,
        result: new.result.map(Rc::from),
    };
    let now_us = new.now_us;
    let replaced = book.put(
        id,
        (request, extra),
        before,
        |place, request| match before {
            // The place was never absent in between.
            Some(_) => place.put_back(request),
            None => place.add(request, now_us),
        },
    );
    (seq, replaced)
}
