//! Requests come, and places that were lost come back.

use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use super::leaving::grace_end;
use super::{At, Entered, KeyQueue, Leaving, NewRequest, Registry};
use crate::lock::{Refusal, Token};
use crate::planted::planted;
use crate::wait::bindings::Linger;
use crate::wait::bytes;
use crate::wait::delivery::{Kept, Revoked};
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId, Ticket};
use crate::wait::queue::WaitQueue;
use crate::wait::request::{Listener, Request, Seq, Words, NEVER};
use crate::wait::several::{keys_of, Several};

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes a request that was refused with [`Refusal::Busy`] or [`Refusal::BusyUpgrade`]: it
    /// waits, or leaves a place, or does neither.
    pub fn enter(&mut self, key_ref: &KeyRef, new: NewRequest<'_, L>) -> Entered {
        let own = self.place_of_token(key_ref, new.token);
        let refusal = new.refusal;
        let (id, entered) = match self.take_place(own, key_ref, None, new) {
            Ok(taken) => taken,
            Err(entered) => return entered,
        };
        if refusal == Refusal::BusyUpgrade {
            self.may_upgrade = true;
            let queues = self.queues.get_mut(&key_ref.db);
            let key = queues.and_then(|queues| queues.get_mut(&key_ref.name));
            if let (Some(key), Some(place)) = (key, self.places.get(id)) {
                key.queue.upgrade(id, place);
            }
        }
        let queue = self.queue(key_ref.db, &key_ref.name);
        let is_candidate = queue.and_then(|queue| queue.candidate(&self.places)) == Some(id);
        match entered {
            Entered::Waits(At::NewHead) if !is_candidate => Entered::Waits(At::New),
            Entered::Kept(At::NewHead) if !is_candidate => Entered::Kept(At::New),
            entered => entered,
        }
    }

    /// Takes a request for a key, or for `several` keys with this one as the first, to the place
    /// that its token has already or to a new one, which counts as the head of its queue here.
    /// Answers the place, and what has become of the request.
    ///
    /// # Errors
    /// What has become of it where it takes no place.
    pub(super) fn take_place(
        &mut self,
        own: Option<PlaceId>,
        key_ref: &KeyRef,
        several: Option<&Rc<Several>>,
        new: NewRequest<'_, L>,
    ) -> Result<(PlaceId, Entered), Entered> {
        let place = own.and_then(|id| self.places.get(id));
        let is_absent = place.is_none_or(Place::is_absent);
        let at = match (place, is_absent) {
            (None, _) => At::NewHead,
            (Some(_), true) => At::Absent,
            (Some(_), false) => At::Joined,
        };
        let keep_ms = new.keep_ms.unwrap_or(0);
        if new.listener.is_none() {
            match (own, is_absent, keep_ms) {
                (_, false, _) | (None, _, 0) => return Err(Entered::No),
                (Some(id), _, 0) => {
                    self.end(id);
                    return Err(Entered::Ended);
                }
                _ => {}
            }
        }
        let own = own.or_else(|| self.new_place(key_ref, several, &new));
        let id = own.ok_or(Entered::No)?;
        let (mode, change) = (new.mode, self.changes.last);
        let user = new.user.and_then(|name| self.users.number(name));
        let entered = match new.listener {
            None => {
                self.change(id, |place| {
                    place.keep(mode, keep_ms);
                    place.count_against(user);
                    place.stay_until(grace_end(new.now_us, keep_ms), change);
                });
                Entered::Kept(at)
            }
            Some(listener) => {
                let request = Request {
                    listener: match listener {
                        Listener::Channel(name) => Listener::Channel(self.channels.shared(name)),
                        client => client,
                    },
                    ttl: new.ttl,
                    times_out_at_us: new.times_out_at_us.unwrap_or(NEVER),
                    keep_ms,
                    user,
                    words: Words::new(mode, new.is_server_generated),
                };
                self.add(id, request, new.linger);
                Entered::Waits(at)
            }
        };
        Ok((id, entered))
    }

    fn add(&mut self, id: PlaceId, request: Request<L>, linger: Option<Linger>) {
        self.last_seq = self.last_seq.saturating_add(1);
        let seq = Seq(self.last_seq);
        self.bytes = self.bytes.saturating_add(bytes::REQUEST);
        if let Some(user) = request.user {
            self.users.add(user);
        }
        let listener = request.listener.clone();
        let channel = self.places.get(id).and_then(Place::channel);
        let replaced = self.change(id, |place| place.add(seq, request)).flatten();
        // The channel that was named last is the one that hears.
        if let (Some(seq), Some(before)) = (channel, replaced) {
            self.forget(id, seq, &before);
        }
        if let Some(linger) = linger {
            self.lingers.insert(seq, linger);
            self.bytes = self.bytes.saturating_add(bytes::LINGER);
        }
        match listener {
            Listener::Client(client) => drop(self.by_listener.insert(client, (id, seq))),
            Listener::Channel(name) => {
                if self.channels.insert(&name, id) {
                    self.bytes = self.bytes.saturating_add(bytes::of_channel(&name));
                }
                if let Some(linger) = linger {
                    self.lingering.insert((linger.client, seq), id);
                }
            }
        }
    }

    fn new_place(
        &mut self,
        key_ref: &KeyRef,
        several: Option<&Rc<Several>>,
        new: &NewRequest<'_, L>,
    ) -> Option<PlaceId> {
        self.last_ticket = match planted("the-newest-first") {
            true => self.last_ticket.checked_sub(1).unwrap_or(u64::MAX >> 1),
            false => self.last_ticket.saturating_add(1),
        };
        let kept = Kept {
            key_ref: key_ref.clone(),
            several: several.cloned(),
            ticket: Ticket(self.last_ticket),
            since_us: new.now_us,
            mode: new.mode,
            keep_ms: 0,
            user: None,
        };
        self.put(kept, new.token)
    }

    /// The reference to a key by the name that all its places share.
    pub(super) fn shared(&self, key_ref: &KeyRef) -> KeyRef {
        let shared = self.key_ref(key_ref.db, &key_ref.name);
        shared.unwrap_or_else(|| key_ref.clone())
    }

    /// Makes a place, which has to be kept or listened at next.
    pub(super) fn put(&mut self, kept: Kept, token: Token<'_>) -> Option<PlaceId> {
        let several = kept
            .several
            .map(|all| Rc::new(all.map(|one| self.shared(one))));
        let first = several.as_ref().map(|all| all.first().key_ref.clone());
        let key_ref = first.unwrap_or_else(|| self.shared(&kept.key_ref));
        let mut place = Place::new(kept.ticket, key_ref.clone(), token.into());
        place.several.clone_from(&several);
        place.since_us = kept.since_us;
        place.keep(kept.mode, kept.keep_ms);
        let user = kept.user.and_then(|name| self.users.number(&name));
        place.count_against(user);
        let outline = place.outline();
        let of_place = bytes::of_place(&place.token, several.as_deref());
        let id = self.places.insert(place)?;
        self.counts.add(&outline);
        self.bytes = self.bytes.saturating_add(of_place);
        if let Some(user) = outline.user {
            self.users.add(user);
        }
        match several {
            None => self.stand(id, key_ref),
            Some(all) => {
                self.places_for_several = self.places_for_several.saturating_add(1);
                all.iter()
                    .for_each(|one| self.stand(id, one.key_ref.clone()));
            }
        }
        self.link(id);
        Some(id)
    }

    /// Puts a place into the queue of a key.
    fn stand(&mut self, id: PlaceId, key_ref: KeyRef) {
        let queues = self.queues.entry(key_ref.db).or_default();
        match queues.get_mut(&key_ref.name) {
            Some(key) => key.queue.insert(id, &self.places),
            None => {
                let of_key = bytes::of_key(&key_ref.name);
                self.bytes = self.bytes.saturating_add(of_key);
                let key = KeyQueue {
                    wakes_at_ms: NEVER,
                    queue: WaitQueue::of(id, self.changes.last),
                };
                if let Some(slots) = &mut self.slots {
                    slots.add(&key_ref);
                }
                queues.insert(key_ref.name, key);
            }
        }
    }
}

/// Holds that nobody has heard of.
impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes the holds that are to be taken back. Their owners have their places again, absent, if
    /// they asked with KEEP; the keys of those are marked. The caller takes the holds back before
    /// it serves any key.
    pub fn take_revoked(&mut self, leaving: Leaving) -> Vec<Revoked> {
        let mut all = self.deliveries.take_revoked();
        for revoked in &mut all {
            match revoked.kept.take() {
                Some(kept) if kept.several.is_some() => {
                    self.restore_several(*kept, revoked.token.as_token(), leaving);
                }
                Some(kept) => self.restore(*kept, revoked.token.as_token(), leaving),
                None => {}
            }
        }
        all
    }

    /// Gives a place back, unless too many of the key are absent.
    pub(super) fn put_back(
        &mut self,
        kept: Kept,
        token: Token<'_>,
        leaving: Leaving,
    ) -> Option<PlaceId> {
        let has_room = |key: &KeyRef| self.may_be_absent(key, leaving);
        let has_room = keys_of(&kept.key_ref, kept.several.as_deref()).all(has_room);
        has_room.then(|| self.put(kept, token)).flatten()
    }

    fn restore(&mut self, kept: Kept, token: Token<'_>, leaving: Leaving) {
        let Kept {
            ticket,
            since_us,
            mode,
            keep_ms,
            ..
        } = kept;
        let key_ref = kept.key_ref.clone();
        self.follow_changes(&key_ref);
        let queue = self.queue(key_ref.db, &key_ref.name);
        let own = queue.and_then(|queue| queue.of_token(token, &self.places));
        let place = own.and_then(|id| self.places.get(id));
        if place.is_some_and(|place| place.several.is_some()) {
            return; // It waits for this key among others now.
        }
        let Some(id) = own.or_else(|| self.put_back(kept, token, leaving)) else {
            return;
        };
        let place = self.places.get(id);
        // The token has taken another place meanwhile: that one moves forward.
        if let Some(place) = place.filter(|place| place.ticket > ticket) {
            let queues = self.queues.get_mut(&key_ref.db);
            if let Some(key) = queues.and_then(|queues| queues.get_mut(&key_ref.name)) {
                key.queue.move_to(place, ticket);
            }
        }
        let change = self.changes.last;
        self.change(id, |place| {
            place.ticket = place.ticket.min(ticket);
            place.since_us = place.since_us.min(since_us);
            if own.is_none() {
                place.stay_until(grace_end(leaving.now_us, keep_ms), change);
            } else if place.keep_ms == 0 {
                place.keep(mode, keep_ms);
            }
        });
        let ticket = self.places.get(id).map(|place| place.ticket);
        if let (Some(queue), Some(ticket)) = (self.queue_mut(&key_ref), ticket) {
            // What it had before is given back, and may be a share that it waits to convert.
            queue.note_owner(ticket);
        }
        self.mark(key_ref.db, &key_ref.name);
    }
}
