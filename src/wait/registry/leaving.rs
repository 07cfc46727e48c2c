//! Requests leave, and places end.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;

use super::patrol::Patrol;
use super::{Leaving, Registry, Removed, Rest};
use crate::lock::{Token, TokenBuf};
use crate::wait::bindings::Linger;
use crate::wait::bytes;
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Place, PlaceId};
use crate::wait::request::{Listener, Request, Seq};

/// Why a request leaves its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It has ended without a grant: with KEEP the place stays.
    Ungranted(Leaving),
    /// It was granted or refused: the place ends with the last request.
    Decided,
}

impl<L: Copy + Eq + Hash, S: BuildHasher + Default> Registry<L, S> {
    /// Takes out the request of a client that is gone; `None` when it does not wait any more. With
    /// KEEP its place stays. The caller marks the key.
    pub fn remove_listener(&mut self, listener: L, leaving: Leaving) -> Option<Removed<L>> {
        let (id, seq) = self.by_listener.get(&listener).copied()?;
        self.leave(id, seq, Why::Ungranted(leaving))
    }

    /// Takes out the requests of a lost connection that listen by a channel and end with it
    /// (LINGER). With KEEP their places stay. Nobody is to be told. The caller marks the keys.
    pub fn remove_lingering(&mut self, client: NonZeroU64, leaving: Leaving) -> Vec<Removed<L>> {
        let of_client = (client, Seq(0))..=(client, Seq(u64::MAX));
        let here = self.lingering.range(of_client);
        let requests: Vec<_> = here.map(|((_, seq), id)| (*id, *seq)).collect();
        let removed = requests
            .into_iter()
            .filter_map(|(id, seq)| self.leave(id, seq, Why::Ungranted(leaving)));
        removed.collect()
    }

    /// Takes out all requests that listen by a channel, because nobody has received its message.
    /// With KEEP their places stay. Nobody is to be told. The waiters behind them may be next, so
    /// their keys are to be served before the step ends: see [`Registry::take_unserved`].
    pub fn unheard(&mut self, channel: &[u8], leaving: Leaving) -> Vec<Removed<L>> {
        let ids: Vec<PlaceId> = self.channels.places(channel).collect();
        let removed = ids.into_iter().filter_map(|id| {
            let place = self.places.get(id)?;
            let seq = place.channel()?;
            self.unserved.extend(place.keys().cloned());
            self.leave(id, seq, Why::Ungranted(leaving))
        });
        removed.collect()
    }

    /// Takes out what is over first: the next request that times out, or place whose grace has
    /// ended, which has no listener. The caller marks the key.
    pub fn take_timed_out(&mut self, leaving: Leaving) -> Option<Removed<L>> {
        let id = self.schedule.timed_out(leaving.now_us)?;
        match self.places.get(id)?.timed_out(leaving.now_us) {
            Some(seq) => self.leave(id, seq, Why::Ungranted(leaving)),
            None => self.end(id).pop(),
        }
    }

    /// Has a token that holds nothing give up its place for a key. The caller answers those who
    /// listened, and serves the key.
    pub fn give_up(&mut self, key: &KeyRef, token: Token<'_>) -> Vec<Removed<L>> {
        let id = self.place_of_token(key, token);
        id.map_or_else(Vec::new, |id| self.end(id))
    }

    /// Ends places for a key, `most` at most. If any are left, the key is marked.
    pub fn dismiss(&mut self, key: &KeyRef, most: usize) -> Vec<Removed<L>> {
        let queue = self.queue(key.db, &key.name);
        let ids = queue.into_iter().flat_map(|queue| queue.iter());
        let ids: Vec<PlaceId> = ids.take(most).collect();
        let removed = ids.into_iter().flat_map(|id| self.end(id)).collect();
        self.mark(key.db, &key.name);
        removed
    }

    /// Ends any place. `None` if there is none.
    pub fn dismiss_any(&mut self) -> Option<Vec<Removed<L>>> {
        let id = self.any_place()?;
        Some(self.end(id))
    }

    /// Ends the place at which nobody listens that a token has for a key, as it was just granted
    /// the key, or asked again without KEEP. Whether there was one, and since when on the monotonic
    /// clock. The caller serves the key.
    pub fn resume(&mut self, key: &KeyRef, token: Token<'_>) -> Option<u64> {
        let id = self.place_of_token(key, token)?;
        let place = self.places.get(id).filter(|place| place.is_absent())?;
        if place.several.is_some() {
            return None; // It is not about this key alone.
        }
        let since_us = place.since_us;
        self.end(id);
        Some(since_us)
    }

    pub(super) fn leave(&mut self, id: PlaceId, seq: Seq, why: Why) -> Option<Removed<L>> {
        let change = self.changes.last;
        let may_stay = match why {
            Why::Ungranted(leaving) => {
                let place = self.places.get(id)?;
                place.keys().all(|key| self.may_be_absent(key, leaving))
            }
            Why::Decided => false,
        };
        let request = self.change(id, |place| {
            let request = place.take(seq)?;
            match why {
                Why::Ungranted(leaving) => {
                    if request.keep_ms > 0 {
                        place.keep(request.mode(), request.keep_ms);
                    }
                    place.count_against(request.user);
                    place.stay_until(grace_end(leaving.now_us, place.keep_ms), change);
                    if place.is_absent() && !may_stay {
                        place.keep_ms = 0;
                    }
                }
                Why::Decided if place.is_absent() => place.keep_ms = 0,
                Why::Decided => {}
            }
            Some(request)
        })??;
        let linger = self.forget(id, seq, &request);
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
        self.counts.change(&before, &after);
        if before.user != after.user {
            // The new one first: it may be the same request that leaves.
            after.user.into_iter().for_each(|user| self.users.add(user));
            before
                .user
                .into_iter()
                .for_each(|user| self.users.remove(user));
        }
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
        let of_place = bytes::of_place(&place.token, place.several.as_deref());
        self.bytes = self.bytes.saturating_sub(of_place);
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
        if self.is_empty() {
            self.may_upgrade = false;
            // One that goes on would pass those who come next.
            self.patrol = Patrol::default();
        }
    }

    fn leave_queue(&mut self, id: PlaceId, key_ref: &KeyRef) {
        let Some(place) = self.places.get(id) else {
            return;
        };
        let queues = self.queues.get_mut(&key_ref.db);
        let key = queues.and_then(|queues| queues.get_mut(&key_ref.name));
        if key.is_some_and(|key| key.queue.remove(place)) {
            self.bytes = self.bytes.saturating_sub(bytes::of_key(&key_ref.name));
            self.set_wake(key_ref, None);
            if let Some(slots) = &mut self.slots {
                slots.remove(key_ref);
            }
            if let Some(queues) = self.queues.get_mut(&key_ref.db) {
                queues.remove(&key_ref.name);
                if queues.is_empty() {
                    queues.shrink_to(SPARE_KEYS);
                }
            }
        }
    }

    /// Forgets the listener of a request that has left its place. Returns what its hold is bound
    /// to.
    pub(super) fn forget(&mut self, id: PlaceId, seq: Seq, request: &Request<L>) -> Option<Linger> {
        let linger = match self.lingers.is_empty() {
            true => None,
            false => self.lingers.remove(&seq),
        };
        if linger.is_some() {
            self.bytes = self.bytes.saturating_sub(bytes::LINGER);
        }
        self.bytes = self.bytes.saturating_sub(bytes::REQUEST);
        if let Some(user) = request.user {
            self.users.remove(user);
        }
        match &request.listener {
            Listener::Client(listener) => drop(self.by_listener.remove(listener)),
            Listener::Channel(name) => {
                if let Some(linger) = linger {
                    self.lingering.remove(&(linger.client, seq));
                }
                if self.channels.remove(name, id) {
                    self.bytes = self.bytes.saturating_sub(bytes::of_channel(name));
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
        .map_or_else(|| place.keep_mode(), Request::mode);
    Removed {
        key_ref: place.key_ref.clone(),
        several: place.several.clone(),
        token: TokenBuf::from(place.token.text().as_token()),
        mode,
        since_us: place.since_us,
        is_server_generated: request.as_ref().is_some_and(Request::is_server_generated),
        linger,
        listener: request.map(|request| request.listener),
        rest,
    }
}
