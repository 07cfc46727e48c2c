//! Locks are passed on. A place for one key is granted where its key is served, request by request
//! ([`step`]). One for several keys is granted as a whole ([`grant_claim`]), when it is next at
//! each of them.

use std::rc::Rc;

use super::key_ref::{KeyId, KeyRef};
use super::leave::{end, leave, LeaveReason, Removed};
use super::place::{Listener, Place, PlaceId, Request, Seq, Stands};
use super::turn::{self, Next};
use super::BookMut;
use crate::lock::{CompactToken, FenceClock, Grant, Lock, Now, Refusal, TokenBuf};

/// What was done for whoever is next.
#[derive(Debug)]
pub enum Step<L> {
    /// A client has a hold. The caller carries out the effect of [`Granted::grant`].
    Granted(Granted<L>),
    /// A channel is to be told of a hold. The caller publishes it. If somebody has received it, the
    /// grant is made ([`heard`]).
    Offered(Offer),
    /// Nobody has listened to its channel, so the request is to end.
    Unheard(ChannelRequest),
    /// It can never be granted here.
    Refused(Removed<L>, Refusal),
    /// It is next, and takes this result in place of a hold. The caller looks whether it exists,
    /// and asks again.
    Asks(Rc<[u8]>),
}

/// A request that listens by a channel.
#[derive(Debug)]
pub struct ChannelRequest {
    pub(crate) place: PlaceId,
    pub(crate) seq: Seq,
}

/// A request that was granted.
#[derive(Debug)]
pub struct Granted<L> {
    /// The request.
    pub removed: Removed<L>,
    /// What it was granted, at the only key or the first one.
    pub grant: Grant,
    /// For how long a new hold stays if nobody hears of it (KEEP), in milliseconds.
    pub(crate) keep_ms: u32,
}

impl<L> Granted<L> {
    /// Whether a channel was told of it before it was made.
    pub const fn is_for_channel(&self) -> bool {
        matches!(self.removed.listener, Some(Listener::Channel(_)))
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
}

impl Offer {
    pub(crate) fn new<L>(
        id: PlaceId,
        place: &Place<L>,
        request: &Request<L>,
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
            request: ChannelRequest {
                place: id,
                seq: request.seq,
            },
        })
    }
}

/// What comes next at a key, and whoever waits is to be told of.
pub(crate) enum Decision {
    Grant(PlaceId, Seq),
    Deadlock(PlaceId, Seq),
    /// A place for several keys is next here.
    Claim(PlaceId),
    /// It is next, and takes this result in place of a hold.
    Asks(Rc<[u8]>),
}

/// Carries out a decision. A client is taken out, granted or refused; a channel is to be told
/// first. `None` if nothing is done.
///
/// A lease counts from its grant, which `granted_at` makes of `now`.
pub(crate) fn step<B: BookMut>(
    book: &mut B,
    decision: Decision,
    lock: Option<&Lock>,
    longest_ms: u64,
    granted_at: impl FnOnce() -> Now,
    fences: &mut FenceClock,
) -> Option<Step<B::Client>> {
    let (id, seq) = match decision {
        Decision::Grant(id, seq) => (id, seq),
        Decision::Asks(result) => return Some(Step::Asks(result)),
        Decision::Claim(_) => return None,
        Decision::Deadlock(id, seq) => {
            let removed = leave(book, id, seq, LeaveReason::Refused)?;
            return Some(Step::Refused(removed, Refusal::Deadlock));
        }
    };
    let at = granted_at();
    let place = book.place(id)?;
    let request = place.request(seq)?;
    let decided = match request.ttl.ms() <= longest_ms {
        true => place.decide(request, lock, at, fences),
        false => Err(Refusal::TtlTooLong),
    };
    let grant = match decided {
        Ok(grant) => grant,
        Err(refusal @ (Refusal::FencesExhausted | Refusal::TtlTooLong)) => {
            let removed = leave(book, id, seq, LeaveReason::Refused)?;
            return Some(Step::Refused(removed, refusal));
        }
        Err(_) => return None,
    };
    if let Some(offer) = Offer::new(id, place, request, grant) {
        return Some(Step::Offered(offer));
    }
    let keep_ms = request.keep_ms;
    Some(Step::Granted(Granted {
        removed: leave(book, id, seq, LeaveReason::Granted)?,
        grant,
        keep_ms,
    }))
}

/// Somebody has received what was published: the grant is made. The caller carries out its effect.
/// `None` when the request has left meanwhile.
pub(crate) fn heard<B: BookMut>(book: &mut B, offer: Offer) -> Option<Granted<B::Client>> {
    let ChannelRequest { place, seq } = offer.request;
    Some(Granted {
        removed: leave(book, place, seq, LeaveReason::Granted)?,
        grant: offer.grant,
        keep_ms: 0,
    })
}

/// Grants all requests at a place for several keys. The last one says for how long. The caller
/// carries out the effect of its grant at each key, in the mode of that key. Empty where nobody
/// listens any more.
pub(crate) fn grant_claim<B: BookMut>(
    book: &mut B,
    id: PlaceId,
    grant: impl FnOnce(&Request<B::Client>) -> Grant,
) -> Vec<Granted<B::Client>> {
    let place = book.place(id);
    let Some((place, last)) = place.and_then(|place| Some((place, place.requests.last()?))) else {
        return Vec::new();
    };
    let grant = grant(last);
    let requests = place.requests.iter();
    let requests: Vec<_> = requests.map(|one| (one.seq, one.keep_ms)).collect();
    let granted = |(seq, keep_ms)| {
        Some(Granted {
            removed: leave(book, id, seq, LeaveReason::Granted)?,
            grant,
            keep_ms,
        })
    };
    requests.into_iter().filter_map(granted).collect()
}

/// Has the places that convert stand where they belong by now, and those whose tokens may have got
/// holds by another lock.
pub(crate) fn settle<B: BookMut>(book: &mut B, key: KeyId, lock: Option<&Lock>, now: Now) {
    for (id, stands) in turn::settle(book, key, lock, now) {
        book.change(id, |place| place.stands = stands);
    }
    if book.set_replaced(key, false) {
        note_owners(book, key, lock, now);
    }
}

/// Notes all places in the line whose tokens have a hold.
fn note_owners<B: BookMut>(book: &mut B, key: KeyId, lock: Option<&Lock>, now: Now) {
    let Some(lock) = lock.filter(|lock| !lock.is_free(now)) else {
        return; // Nobody is an owner.
    };
    // There may be very many places, or as many holds.
    let ids: Vec<PlaceId> = if lock.len() < book.counts_at(key).0 {
        let tokens = lock.live_holders(now).map(|(token, _)| token);
        let ids = tokens.filter_map(|token| book.of_token(key, token.text().as_token()));
        ids.collect()
    } else {
        let has_hold = |token: &CompactToken| lock.hold_of(token.text().as_token(), now).is_some();
        let is_owner = |id: &PlaceId| book.place(*id).is_some_and(|place| has_hold(&place.token));
        book.all_at(key).filter(is_owner).collect()
    };
    for id in ids {
        book.change(id, |place| {
            if place.stands == Stands::InLine && !place.is_for_several_keys() {
                place.stands = Stands::Owns;
            }
        });
    }
}

/// Does what nobody is to be told of, and says what comes next. `absent` is a result that does not
/// exist.
pub(crate) fn next<B: BookMut>(
    book: &mut B,
    key: KeyId,
    absent: Option<&[u8]>,
    lock: Option<&Lock>,
    now: Now,
) -> Option<Decision> {
    loop {
        let next = turn::next(book, key, lock, now);
        #[cfg(test)]
        book.check(key, lock, now, next);
        // A free lock is kept for an absent place, or one for several keys. A lock that comes to
        // the key by RENAME takes its place, and nobody tells.
        if matches!(next, None | Some(Next::Claim(_))) && lock.is_none_or(|l| l.is_free(now)) {
            book.set_replaced(key, true);
        }
        let next = next?;
        if let Next::Grant(id, _) | Next::Deadlock(id, _) | Next::End(id) = next {
            let result = book.result_of(id);
            if let Some(result) = result.filter(|result| Some(&***result) != absent) {
                return Some(Decision::Asks(result.clone()));
            }
        }
        match next {
            Next::Grant(id, seq) => return Some(Decision::Grant(id, seq)),
            Next::Deadlock(id, seq) => return Some(Decision::Deadlock(id, seq)),
            Next::Claim(id) => return Some(Decision::Claim(id)),
            Next::End(id) => drop(end(book, id)),
            Next::Stands(id, stands) => {
                book.change(id, |place| place.stands = stands);
            }
        }
    }
}
