//! Locks are passed on: a place for one key is granted where its key is served
//! ([`Registry::grant_next`]). [`super::claims`] has those for several keys.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::endings::ChannelRequest;
use super::leave::{LeaveReason, Removed};
use super::Registry;
use crate::lock::{FenceClock, Grant, Lock, Now, Refusal, TokenBuf};
use crate::rules::key_ref::{KeyId, KeyRef};
use crate::rules::place::{Listener, Place, PlaceId, Request, Seq, Stands, Ticket};
use crate::rules::turn::{self, Next};
use crate::rules::Book;
use crate::wait::lost::Delivery;

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

/// A request that was granted.
#[derive(Debug)]
pub struct Granted<L> {
    /// The request.
    pub removed: Removed<L>,
    /// What it was granted, at the only key or the first one.
    pub grant: Grant,
    /// For how long a new hold stays if nobody hears of it (KEEP), in milliseconds.
    pub(super) keep_ms: u32,
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
    pub(super) fn new<L>(
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
            ticket: place.ticket,
        })
    }
}

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
            self.settle(key_id, lock, now);
        }
        let (id, seq) = match self.next(key_id, terms.absent, lock, now)? {
            Decision::Grant(id, seq) => (id, seq),
            Decision::Asks(result) => return Some(Step::Asks(result)),
            Decision::Claim(id) => {
                let ticket = self.book.place(id)?.ticket;
                self.agenda.step.candidates.insert((ticket, id));
                return None;
            }
            Decision::Deadlock(id, seq) => {
                let removed = self.leave(id, seq, LeaveReason::Refused)?;
                return Some(Step::Refused(removed, Refusal::Deadlock));
            }
        };
        let at = granted_at(now);
        let place = self.book.place(id)?;
        let request = place.request(seq)?;
        let decided = match request.ttl.ms() <= terms.longest_ms {
            true => place.decide(request, lock, at, fences),
            false => Err(Refusal::TtlTooLong),
        };
        let grant = match decided {
            Ok(grant) => grant,
            Err(refusal @ (Refusal::FencesExhausted | Refusal::TtlTooLong)) => {
                let removed = self.leave(id, seq, LeaveReason::Refused)?;
                return Some(Step::Refused(removed, refusal));
            }
            Err(_) => return None,
        };
        if let Some(offer) = Offer::new(id, place, request, grant) {
            if self.agenda.endings.has(&offer.channel, seq) || self.is_lost(seq) {
                return Some(Step::Unheard(offer.request));
            }
            return Some(Step::Offered(offer));
        }
        let keep_ms = request.keep_ms;
        Some(Step::Granted(Granted {
            removed: self.leave(id, seq, LeaveReason::Granted)?,
            grant,
            keep_ms,
        }))
    }

    /// Has the places that convert stand where they belong by now, and those whose tokens may have
    /// got holds by another lock.
    pub(super) fn settle(&mut self, key: KeyId, lock: Option<&Lock>, now: Now) {
        for (id, stands) in turn::settle(&self.book, key, lock, now) {
            self.book.change(id, |place| place.stands = stands);
        }
        let queue = self.book.queues.get_mut(key);
        if queue.is_some_and(|queue| std::mem::take(&mut queue.is_replaced)) {
            self.note_owners(key, lock, now);
        }
    }

    /// Notes all places in the line whose tokens have a hold.
    fn note_owners(&mut self, key: KeyId, lock: Option<&Lock>, now: Now) {
        let Some(lock) = lock.filter(|lock| !lock.is_free(now)) else {
            return; // Nobody is an owner.
        };
        let count = self
            .book
            .queues
            .get(key)
            .map_or(0, |queue| queue.counts.all());
        // There may be very many places, or as many holds.
        let ids: Vec<PlaceId> = if lock.len() < count {
            let tokens = lock.live_holders(now).map(|(token, _)| token);
            let ids = tokens.filter_map(|token| {
                let token = token.text();
                self.book.of_token(key, token.as_token())
            });
            ids.collect()
        } else {
            let is_owner = |id: &PlaceId| {
                let token = self.book.place(*id).map(|place| place.token.text());
                token.is_some_and(|token| lock.hold_of(token.as_token(), now).is_some())
            };
            self.book.all_at(key).filter(is_owner).collect()
        };
        for id in ids {
            self.book.change(id, |place| {
                if place.stands == Stands::InLine && !place.is_for_several_keys() {
                    place.stands = Stands::Owns;
                }
            });
        }
    }

    /// Does what nobody is to be told of, and says what comes next. `absent` is a result that does
    /// not exist.
    pub(super) fn next(
        &mut self,
        key: KeyId,
        absent: Option<&[u8]>,
        lock: Option<&Lock>,
        now: Now,
    ) -> Option<Decision> {
        loop {
            let next = turn::next(&self.book, key, lock, now);
            #[cfg(test)]
            if self.book.len() < 50 {
                assert_eq!(next, turn::next(&self.book.flat(), key, lock, now));
            }
            // A free lock is kept for an absent place, or one for several keys. A lock that comes
            // to the key by RENAME takes its place, and nobody tells.
            if matches!(next, None | Some(Next::Claim(_))) && lock.is_none_or(|l| l.is_free(now)) {
                if let Some(queue) = self.book.queues.get_mut(key) {
                    queue.is_replaced = true;
                }
            }
            let next = next?;
            if let Next::Grant(id, _) | Next::Deadlock(id, _) | Next::End(id) = next {
                let result = self.book.results.of_place(id);
                if let Some(result) = result.filter(|result| Some(&***result) != absent) {
                    return Some(Decision::Asks(result.clone()));
                }
            }
            match next {
                Next::Grant(id, seq) => return Some(Decision::Grant(id, seq)),
                Next::Deadlock(id, seq) => return Some(Decision::Deadlock(id, seq)),
                Next::Claim(id) => return Some(Decision::Claim(id)),
                Next::End(id) => drop(self.end(id)),
                Next::Stands(id, stands) => {
                    self.book.change(id, |place| place.stands = stands);
                }
            }
        }
    }

    /// Somebody has received what was published: the grant is made. The caller carries out its
    /// effect. `None` when the request has left meanwhile.
    pub fn heard(&mut self, offer: Offer) -> Option<Granted<L>> {
        let ChannelRequest { place, seq } = offer.request;
        let at = self.book.place(place);
        at.filter(|at| at.ticket == offer.ticket)?;
        Some(Granted {
            removed: self.leave(place, seq, LeaveReason::Granted)?,
            grant: offer.grant,
            keep_ms: 0,
        })
    }
}

/// What comes next at a key, and whoever waits is to be told of.
pub(super) enum Decision {
    Grant(PlaceId, Seq),
    Deadlock(PlaceId, Seq),
    Claim(PlaceId),
    /// It is next, and takes this result in place of a hold.
    Asks(Rc<[u8]>),
}
