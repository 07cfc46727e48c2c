//! Questions. They change nothing.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::rc::Rc;

use super::{KeyQueue, Registry};
use crate::lock::{Deadline, Lock, Mode, Now, Token, TokenText, Waiting};
use crate::wait::key_ref::KeyRef;
use crate::wait::place::{Counts, PlaceId};
use crate::wait::queue::WaitQueue;
use crate::wait::request::{Listener, Seq};
use crate::wait::schedule::Due;

/// One request that waits, or a place without a listener, for those who ask.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a, L> {
    /// For whom.
    pub token: TokenText<'a>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// When its place was taken, on the monotonic clock.
    pub since_us: u64,
    /// Whatever listens; `None` is nobody.
    pub listener: Option<&'a Listener<L>>,
}

impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether nobody waits anywhere, and no place is kept.
    pub fn is_empty(&self) -> bool {
        self.places.len() == 0
    }

    /// How many places there are, for all keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// How many there are of each kind, for all keys.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many places there are for one key.
    pub fn len_of(&self, db: i32, name: &[u8]) -> usize {
        self.queue(db, name).map_or(0, WaitQueue::len)
    }

    /// How many bytes all of it takes, nearly.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are of each kind, for one key. It looks at none of them.
    pub fn counts_of(&self, db: i32, name: &[u8]) -> Counts {
        let queue = self.queue(db, name);
        queue.map_or_else(Counts::default, |queue| queue.counts(&self.places))
    }

    /// Whether a token has a place for a key.
    pub fn has_place(&self, key: &KeyRef, token: Token<'_>) -> bool {
        self.place_of_token(key, token).is_some()
    }

    /// The place that a token has for a key.
    pub(super) fn place_of_token(&self, key: &KeyRef, token: Token<'_>) -> Option<PlaceId> {
        let queue = self.queue(key.db, &key.name)?;
        queue.of_token(token, &self.places)
    }

    /// Whether a request ends with this connection: it listens by a channel, and has said LINGER.
    pub fn has_lingering(&self, client: NonZeroU64) -> bool {
        let of_client = (client, Seq(0))..=(client, Seq(u64::MAX));
        self.lingering.range(of_client).next().is_some()
    }

    /// For how many keys there are places.
    pub fn waited_key_count(&self) -> usize {
        self.queues.values().map(HashMap::len).sum()
    }

    /// Whether somebody waits for a key, or has a place there.
    pub fn is_waited_for(&self, key: &KeyRef) -> bool {
        self.queue(key.db, &key.name).is_some()
    }

    pub(in crate::wait) fn queue(&self, db: i32, name: &[u8]) -> Option<&WaitQueue> {
        self.queues.get(&db)?.get(name).map(|key| &key.queue)
    }

    /// What the decision about a request of this token and mode must know of those who wait for the
    /// key, which has this lock.
    pub fn ahead_of(
        &self,
        key: &KeyRef,
        (token, mode): (Token<'_>, Mode),
        lock: Option<&Lock>,
        now: Now,
    ) -> Waiting {
        let Some(queue) = self.queue(key.db, &key.name) else {
            return Waiting::default();
        };
        let upgrading = queue.exclusive_upgrade(&self.places);
        let upgrading = upgrading.and_then(|id| self.places.get(id));
        Waiting {
            any: queue.is_ahead_of(token, mode, &self.places, lock, now),
            other_upgrades: upgrading.is_some_and(|place| !place.token.is(token)),
        }
    }

    /// When the passing of time alone may let a request of this key in.
    pub fn wakes_at(&self, key: &KeyRef, lock: Option<&Lock>, now: Now) -> Option<Deadline> {
        let queue = self.queue(key.db, &key.name)?;
        queue.wakes_at(&self.places, lock, now)
    }

    /// All that waits for a key, in the order in which it stands.
    pub fn waiters(&self, db: i32, name: &[u8]) -> impl Iterator<Item = Waiter<'_, L>> {
        let queues = self.queues.get(&db);
        let here = queues.and_then(|queues| queues.get_key_value(name));
        let ids = here.into_iter().flat_map(|(name, key)| {
            let ids = key.queue.iter();
            ids.map(move |id| (name, id))
        });
        let places = ids.filter_map(|(name, id)| Some((name, self.places.get(id)?)));
        let places = places.filter(|(_, place)| !self.changes.end(place));
        places.flat_map(|(name, place)| {
            let among = place.mode_among(name);
            let waiter = move |mode, listener| Waiter {
                token: place.token.text(),
                mode: among.unwrap_or(mode),
                since_us: place.since_us,
                listener,
            };
            let absent = place.is_absent().then(|| waiter(place.mode(), None));
            let requests = place.iter();
            let requests =
                requests.map(move |(_, request)| waiter(request.mode(), Some(&request.listener)));
            absent.into_iter().chain(requests)
        })
    }

    /// The keys of a database with the longest waits, the longest first, `most` at most: each with
    /// the number of its places, and since when the first one is there, on the monotonic clock.
    pub fn longest_waits(&self, db: i32, most: usize) -> Vec<(KeyRef, usize, u64)> {
        let queues = self.queues.get(&db).into_iter().flatten();
        let waits = queues.filter_map(|(name, key)| {
            let places = key.queue.iter().filter_map(|id| self.places.get(id));
            let since_us = places.map(|place| place.since_us).min()?;
            Some((since_us, name, key.queue.len()))
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable();
        waits.truncate(most);
        let all = waits.into_iter().map(|(since_us, name, len)| {
            let name = Rc::clone(name);
            (KeyRef { db, name }, len, since_us)
        });
        all.collect()
    }

    /// The reference to a key that is waited for.
    pub fn key_ref(&self, db: i32, name: &[u8]) -> Option<KeyRef> {
        let (name, _) = self.queues.get(&db)?.get_key_value(name)?;
        let name = Rc::clone(name);
        Some(KeyRef { db, name })
    }

    /// All keys that are waited for.
    #[cfg(test)]
    pub(in crate::wait) fn waited_keys(&self) -> Vec<KeyRef> {
        let keys = self.queues.iter().flat_map(|(db, queues)| {
            let names = queues.keys().map(Rc::clone);
            names.map(|name| KeyRef { db: *db, name })
        });
        keys.collect()
    }

    /// Whether there is something to do now: marked keys, databases that have changed, or holds to
    /// take back.
    pub fn has_work(&self) -> bool {
        self.has_marks() || self.is_behind() || self.deliveries.has_revoked()
    }

    /// Whether any keys are marked.
    pub fn has_marks(&self) -> bool {
        !self.dirty.is_empty() || !self.dirty_first.is_empty()
    }

    /// Whether the step must not end yet: see [`Registry::take_candidate`] and
    /// [`Registry::take_unserved`].
    pub fn is_unfinished(&self) -> bool {
        !self.candidates.is_empty() || !self.unserved.is_empty()
    }

    /// When there is something to do.
    pub fn due(&self) -> Due {
        self.schedule.due(self.has_work())
    }

    pub(super) fn queue_mut(&mut self, key: &KeyRef) -> Option<&mut WaitQueue> {
        let key: &mut KeyQueue = self.queues.get_mut(&key.db)?.get_mut(&key.name)?;
        Some(&mut key.queue)
    }

    /// Whether every table has as many entries as there are places, and none is left of those
    /// before.
    #[cfg(test)]
    pub(crate) fn is_tight(&self) -> bool {
        use crate::wait::request::NEVER;
        assert!(!self.is_unfinished());
        self.assert_tokens_tight();
        for (db, queues) in &self.queues {
            let mut seen = queues.values().map(|key| key.queue.seen_change());
            let is_behind = seen.any(|seen| self.changes.is_behind(*db, seen));
            assert!(!is_behind || self.is_behind(), "a queue that never follows");
        }
        let queues = self.queues.values().flat_map(HashMap::values);
        let mut ids: Vec<_> = queues.clone().flat_map(|key| key.queue.iter()).collect();
        ids.sort_unstable();
        // A place for several keys is in the queue of each, and of no other.
        for same in ids.chunk_by(|one, other| one == other) {
            let place = self.places.get(same[0]).unwrap();
            let queues = place.keys();
            let queues = queues.filter_map(|key| self.queue(key.db, &key.name));
            let has_it = |queue: &&WaitQueue| queue.iter().any(|id| id == same[0]);
            assert_eq!(queues.filter(has_it).count(), same.len());
            assert_eq!(place.keys().count(), same.len());
        }
        ids.dedup();
        self.assert_sums_tight(&ids);
        let places = ids.iter().map(|id| self.places.get(*id).unwrap());
        let (mut counts, mut queued, mut clients, mut due) = (Counts::default(), 0, 0, 0);
        let mut for_several = 0;
        let (mut channels, mut lingering) = (std::collections::BTreeSet::new(), 0);
        for place in places {
            queued += 1;
            for_several += usize::from(place.several.is_some());
            assert!(!place.is_over());
            counts.add(&place.outline());
            due += usize::from(place.outline().due_us.is_some());
            for (seq, request) in place.iter() {
                match &request.listener {
                    Listener::Client(_) => clients += 1,
                    Listener::Channel(name) => {
                        let id = self.place_of_token(&place.key_ref, place.token.text().as_token());
                        channels.insert((Rc::clone(name), id.unwrap()));
                        lingering += usize::from(self.lingers.contains_key(&seq));
                    }
                }
            }
        }
        let wakes = queues.clone().filter(|key| key.wakes_at_ms != NEVER);
        queued == self.len()
            && for_several == self.places_for_several
            && self.by_listener.len() == clients
            && self.lingering.len() == lingering
            && self.channels.pairs() == channels
            && self.counts == counts
            && self.schedule.counts() == (wakes.count(), due)
            && self
                .slots
                .iter()
                .all(|slots| slots.len() == queues.clone().count())
            && queues.clone().all(|key| key.queue.is_tight(&self.places))
    }
}
