//! The lock is passed on.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::leaving::Why;
use super::{Granted, Offer, Registry, Step};
use crate::lock::{Ask, FenceClock, Hold, Lock, Mode, Now, Refusal, TokenBuf, Waiting};
use crate::wait::delivery::Kept;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId};
use crate::wait::queue::Next;
use crate::wait::request::{Listener, Request, Seq};

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
        now: Now,
        granted_at: impl FnOnce(Now) -> Now,
        fences: &mut FenceClock,
    ) -> Option<Step<L>> {
        self.follow_changes(key);
        let (id, seq) = loop {
            let queues = self.queues.get_mut(&key.db);
            let here = queues.and_then(|queues| queues.get_mut(&key.name))?;
            let next = here.queue.next(&self.places, lock, now);
            self.may_upgrade |= here.queue.has_upgrades();
            match next? {
                Next::Grant(id, seq) => break (id, seq),
                Next::Several(id) => {
                    if self.is_admitted(id, key, lock, now) {
                        self.note_candidate(id);
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
        let token = place.token.text();
        let ask = Ask {
            mode: request.mode(),
            token: token.as_token(),
            ttl: request.ttl,
        };
        let grant = match Lock::acquire(lock, ask, at, Waiting::default(), fences) {
            Ok(grant) => grant,
            Err(refusal @ Refusal::FencesExhausted) => {
                let removed = self.leave(id, seq, Why::Decided)?;
                return Some(Step::Refused(removed, refusal));
            }
            Err(_) => return None,
        };
        let (hold, had_it) = (grant.hold, grant.had_it);
        if let Listener::Channel(channel) = &request.listener {
            return Some(Step::Offered(Offer {
                channel: Rc::clone(channel),
                key_ref: place.key_ref.clone(),
                token: TokenBuf::from(token.as_token()),
                hold,
                at,
                had_it,
                place: id,
                ticket: place.ticket,
                seq,
            }));
        }
        let before = lock.and_then(|lock| lock.hold_of(token.as_token(), at));
        let kept = self.kept(place, request);
        self.deliver(id, seq, hold, had_it, before, kept, at)
    }

    #[allow(clippy::too_many_arguments)]
    fn deliver(
        &mut self,
        id: PlaceId,
        seq: Seq,
        hold: Hold,
        had_it: bool,
        before: Option<(Mode, Hold)>,
        kept: Option<Box<Kept>>,
        at: Now,
    ) -> Option<Step<L>> {
        let removed = self.leave(id, seq, Why::Decided)?;
        let delivery = self
            .deliveries
            .granted(&removed.key_ref, hold.fence, before);
        Some(Step::Granted(Granted {
            removed,
            hold,
            had_it,
            delivery: Some(delivery),
            at,
            kept,
        }))
    }

    /// Somebody has received what was published: the grant is made. The caller carries out
    /// [`Granted::effect`]. `None` when the request has left meanwhile.
    pub fn heard(&mut self, offer: Offer) -> Option<Granted<L>> {
        let (hold, had_it, at) = (offer.hold, offer.had_it, offer.at);
        let place = self.places.get(offer.place);
        place.filter(|place| place.ticket == offer.ticket)?;
        let removed = self.leave(offer.place, offer.seq, Why::Decided)?;
        let (db, fence) = (removed.key_ref.db, hold.fence);
        // The owner knows of the hold, whatever becomes of another client that waited for it.
        self.deliveries
            .acknowledge(db, &removed.key_ref.name, fence);
        Some(Granted {
            removed,
            hold,
            had_it,
            delivery: None,
            at,
            kept: None,
        })
    }

    /// What gives the place back where nobody hears of the grant.
    pub(super) fn kept(&self, place: &Place<L>, request: &Request<L>) -> Option<Box<Kept>> {
        (request.keep_ms > 0).then(|| {
            Box::new(Kept {
                key_ref: place.key_ref.clone(),
                several: place.several.clone(),
                ticket: place.ticket,
                since_us: place.since_us,
                mode: request.mode(),
                keep_ms: request.keep_ms,
                user: request.user.and_then(|user| self.users.name(user)),
            })
        })
    }
}
