//! Requests leave, and places end.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;

use super::{Registry, Removed, Rest};
use crate::lock::{Token, TokenBuf};
use crate::wait::bindings::Linger;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId};
use crate::wait::request::{Listener, Request, Seq};

/// Why a request leaves its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It has ended without a grant at this instant of the monotonic clock: with KEEP the place stays.
    Ungranted { now_us: u64 },
    /// It was granted or refused: the place ends with the last request.
    Decided,
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes out the request of a client that is gone, at `now_us` of the monotonic clock; `None` when it does not wait any more. With
    /// KEEP its place stays. The caller marks the key.
    pub fn remove_listener(&mut self, listener: L, now_us: u64) -> Option<Removed<L>> {
        let (id, seq) = self.by_listener.get(&listener).copied()?;
        self.leave(id, seq, Why::Ungranted { now_us })
    }

    /// Takes out the requests of a lost connection that listen by a channel and end with it (LINGER), at `now_us` of the monotonic clock.
    /// With KEEP their places stay. Nobody is to be told. The caller marks the keys.
    pub fn remove_lingering(&mut self, client: NonZeroU64, now_us: u64) -> Vec<Removed<L>> {
        let of_client = (client, Seq(0))..=(client, Seq(u64::MAX));
        let here = self.lingering.range(of_client);
        let requests: Vec<_> = here.map(|((_, seq), id)| (*id, *seq)).collect();
        let removed = requests
            .into_iter()
            .filter_map(|(id, seq)| self.leave(id, seq, Why::Ungranted { now_us }));
        removed.collect()
    }

    /// Takes out what is over at `now_us` of the monotonic clock: requests that time out, and places whose grace has ended, which have no
    /// listener. The caller marks the keys.
    pub fn take_timed_out(&mut self, now_us: u64) -> Vec<Removed<L>> {
        let mut all = Vec::new();
        for id in self.schedule.timed_out(now_us) {
            let Some(place) = self.places.get(id) else {
                continue;
            };
            if place.is_absent() {
                all.extend(self.end(id));
                continue;
            }
            while let Some(seq) = self
                .places
                .get(id)
                .and_then(|place| place.timed_out(now_us))
            {
                all.extend(self.leave(id, seq, Why::Ungranted { now_us }));
            }
        }
        all
    }

    /// Has a token that holds nothing give up its place for a key. The caller answers those who listened, and serves the key.
    pub fn give_up(&mut self, key: &KeyRef, token: Token<'_>) -> Vec<Removed<L>> {
        let id = self.place_of_token(key, token);
        id.map_or_else(Vec::new, |id| self.end(id))
    }

    /// Ends all places for a key.
    pub fn dismiss_all(&mut self, key: &KeyRef) -> Vec<Removed<L>> {
        let queue = self.queue(key.db, &key.name);
        let ids: Vec<PlaceId> = queue.into_iter().flat_map(|queue| queue.iter()).collect();
        ids.into_iter().flat_map(|id| self.end(id)).collect()
    }

    /// Ends the place at which nobody listens that a token has for a key, as it was just granted the key, or asked again without KEEP.
    /// Whether there was one, and since when on the monotonic clock. The caller serves the key.
    pub fn resume(&mut self, key: &KeyRef, token: Token<'_>) -> Option<u64> {
        let id = self.place_of_token(key, token)?;
        let place = self.places.get(id).filter(|place| place.is_absent())?;
        if place.several.is_some() {
            return None; // It is not about this key alone.
        }
        let since_us = place.since_us;
        self.end(id);
        if let Some(queue) = self.queue_mut(key) {
            queue.lock_granted();
        }
        Some(since_us)
    }

    pub(super) fn leave(&mut self, id: PlaceId, seq: Seq, why: Why) -> Option<Removed<L>> {
        let request = self.change(id, |place| {
            let request = place.take(seq)?;
            match why {
                Why::Ungranted { now_us } => {
                    if request.keep_ms > 0 {
                        place.keep(request.mode, request.keep_ms);
                    }
                    place.stay_until(grace_end(now_us, place.keep_ms));
                }
                Why::Decided if place.is_absent() => place.keep_ms = 0,
                Why::Decided => {}
            }
            Some(request)
        })??;
        let linger = self.forget(seq, &request);
        let place = self.places.get(id)?;
        let rest = match (place.is_over(), place.is_absent()) {
            (true, _) => Rest::Ended,
            (_, true) => Rest::Absent,
            (_, false) => Rest::Listens,
        };
        let removed = removed(place, Some(request), linger, rest);
        self.drop_if_over(id);
        Some(removed)
    }

    /// Ends a place. There is one entry for each of its requests, or one without a listener.
    pub(super) fn end(&mut self, id: PlaceId) -> Vec<Removed<L>> {
        let mut all = Vec::new();
        while let Some(place) = self.places.get(id) {
            match place.first().map(|(seq, _)| seq) {
                Some(seq) => all.extend(self.leave(id, seq, Why::Decided)),
                None => {
                    all.push(removed(place, None, None, Rest::Ended));
                    self.change(id, |place| place.keep_ms = 0);
                    self.drop_if_over(id);
                }
            }
        }
        all
    }

    /// Changes a place, and all tables that depend on it. The caller drops it if it is over then.
    pub(super) fn change<R>(
        &mut self,
        id: PlaceId,
        act: impl FnOnce(&mut Place<L>) -> R,
    ) -> Option<R> {
        let place = self.places.get_mut(id)?;
        let before = place.outline();
        let result = act(place);
        let after = place.outline();
        self.schedule.set_timeout(id, before.due_us, after.due_us);
        self.counts.change(before.kind, after.kind);
        for key_ref in place.keys() {
            let queues = self.queues.get_mut(&key_ref.db);
            if let Some(key) = queues.and_then(|queues| queues.get_mut(&key_ref.name)) {
                key.queue.changed(place, before, after);
            }
        }
        Some(result)
    }

    pub(super) fn drop_if_over(&mut self, id: PlaceId) {
        let Some(place) = self.places.get(id).filter(|place| place.is_over()) else {
            return;
        };
        let (key_ref, ticket) = (place.key_ref.clone(), place.ticket);
        match place.several.clone() {
            None => self.leave_queue(id, &key_ref),
            Some(all) => {
                for one in all.iter() {
                    self.leave_queue(id, &one.key_ref);
                    // The waiter behind it may be next.
                    self.mark(one.key_ref.db, &one.key_ref.name);
                }
                self.candidates.remove(&(ticket, id));
                self.places_for_several = self.places_for_several.saturating_sub(1);
            }
        }
        self.unlink(id);
        self.places.remove(id);
    }

    fn leave_queue(&mut self, id: PlaceId, key_ref: &KeyRef) {
        let Some(place) = self.places.get(id) else {
            return;
        };
        let queues = self.queues.get_mut(&key_ref.db);
        let key = queues.and_then(|queues| queues.get_mut(&key_ref.name));
        if key.is_some_and(|key| key.queue.remove(place)) {
            self.set_wake(key_ref, None);
            if let Some(queues) = self.queues.get_mut(&key_ref.db) {
                queues.remove(&key_ref.name);
                if queues.is_empty() {
                    queues.shrink_to(SPARE_KEYS);
                }
            }
        }
    }

    /// Forgets the listener of a request that has left. Returns what its hold is bound to.
    pub(super) fn forget(&mut self, seq: Seq, request: &Request<L>) -> Option<Linger> {
        let linger = match self.lingers.is_empty() {
            true => None,
            false => self.lingers.remove(&seq),
        };
        match &request.listener {
            Listener::Client(listener) => drop(self.by_listener.remove(listener)),
            Listener::Channel(name) => {
                if let Some(linger) = linger {
                    self.lingering.remove(&(linger.client, seq));
                }
                match self.channels.get_mut(name) {
                    Some(count) if *count > 1 => *count = count.saturating_sub(1),
                    _ => drop(self.channels.remove(name)),
                }
            }
        }
        linger
    }
}

/// How many keys a database has room for while nobody waits for any.
pub(super) const SPARE_KEYS: usize = 1_024;

pub(super) const fn grace_end(now_us: u64, keep_ms: u32) -> u64 {
    now_us.saturating_add((keep_ms as u64).saturating_mul(1_000))
}

fn removed<L>(
    place: &Place<L>,
    request: Option<Request<L>>,
    linger: Option<Linger>,
    rest: Rest,
) -> Removed<L> {
    let mode = request
        .as_ref()
        .map_or_else(|| place.keep_mode(), |request| request.mode);
    Removed {
        key_ref: place.key_ref.clone(),
        several: place.several.clone(),
        token: TokenBuf::from(place.token.text().as_token()),
        mode,
        since_us: place.since_us,
        is_server_generated: request.as_ref().is_some_and(|r| r.is_server_generated),
        linger,
        listener: request.map(|request| request.listener),
        rest,
    }
}
