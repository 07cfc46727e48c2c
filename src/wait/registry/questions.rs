//! Questions. They change nothing.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::rc::Rc;

use super::Registry;
use crate::lock::{CompactToken, Deadline, Lock, Mode, Now, Token, TokenText, Waiting};
use crate::wait::key_ref::KeyRef;
use crate::wait::keys::Keys;
#[cfg(test)]
use crate::wait::keys::Several;
use crate::wait::place::{Counts, Place, PlaceId};
use crate::wait::queue::in_the_way::{Budget, InTheWay, Spot};
use crate::wait::queue::WaitQueue;
use crate::wait::request::Listener;
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
    /// The result that answers its place.
    pub result: Option<&'a [u8]>,
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
        self.load.counts
    }

    /// How many bytes all of it takes, nearly.
    pub const fn bytes(&self) -> usize {
        let bytes = self.load.bytes.saturating_add(self.queues.bytes);
        let bytes = bytes.saturating_add(self.results.bytes);
        bytes.saturating_add(self.listeners.bytes)
    }

    /// How many there are of each kind, for one key. It looks at none of them.
    pub fn counts_of(&self, db: i32, name: &[u8]) -> Counts {
        let queue = self.queues.get(db, name);
        queue.map_or_else(Counts::default, |queue| queue.counts(&self.places))
    }

    /// The first place that a token has for any of these keys.
    pub(super) fn place_of(&self, keys: &Keys, token: Token<'_>) -> Option<PlaceId> {
        if self.is_empty() {
            return None; // The usual case.
        }
        keys.iter().find_map(|key| self.place_of_token(key, token))
    }

    /// The place that a token has for a key.
    pub(super) fn place_of_token(&self, key: &KeyRef, token: Token<'_>) -> Option<PlaceId> {
        self.queues.of(key)?.of_token(token, &self.places)
    }

    /// Where a token stands in the queue of a key.
    pub(in crate::wait) fn spot_of(&self, key: &KeyRef, token: Token<'_>) -> Option<Spot> {
        let queue = self.queues.of(key)?;
        let id = queue.of_token(token, &self.places)?;
        Some(queue.spot_of(id, self.places.get(id)?, &key.name))
    }

    /// Whether a token waits for any of these keys by another request than one for exactly these,
    /// in the same modes. Nobody listens at an absent place, so its modes do not matter.
    pub fn waits_otherwise(&self, keys: &Keys, token: Token<'_>) -> bool {
        let place = self
            .place_of(keys, token)
            .and_then(|id| self.places.get(id));
        place.is_some_and(|place| !place.keys.are(keys, !place.is_absent()))
    }

    /// Whether there is any place for several keys.
    pub const fn has_several(&self) -> bool {
        self.load.for_several > 0
    }

    /// Whether a request ends with this connection: it listens by a channel, and has said LINGER.
    pub fn has_lingering(&self, client: NonZeroU64) -> bool
    where
        L: Copy + Eq + Hash,
    {
        self.listeners.of_connection(client).next().is_some()
    }

    /// For how many keys there are places.
    pub fn waited_key_count(&self) -> usize {
        self.queues.len()
    }

    /// Whether somebody waits for a key, or has a place there.
    pub fn is_waited_for(&self, key: &KeyRef) -> bool {
        self.queues.of(key).is_some()
    }

    pub(in crate::wait) fn queue(&self, db: i32, name: &[u8]) -> Option<&WaitQueue> {
        self.queues.get(db, name)
    }

    pub(in crate::wait) fn place(&self, id: PlaceId) -> Option<&Place<L>> {
        self.places.get(id)
    }

    /// The places of a token.
    pub(in crate::wait) fn places_of<'a>(
        &'a self,
        token: &'a CompactToken,
    ) -> impl Iterator<Item = (PlaceId, &'a Place<L>)> {
        self.tokens.places_of(token, &self.places)
    }

    /// All places but those for this key, which is the only one of each place that is for it.
    pub(in crate::wait) fn places_elsewhere<'a>(
        &'a self,
        db: i32,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'a Place<L>> {
        let keys = self.queues.iter();
        let keys = keys.filter(move |(number, key, _)| *number != db || ***key != *name);
        keys.flat_map(move |(number, key, here)| {
            let places = here.queue.iter().filter_map(|id| self.places.get(id));
            // A place for several keys stands in the queue of each.
            places.filter(move |place| {
                let first = place.keys.first();
                first.db == number && first.name == *key
            })
        })
    }

    pub(in crate::wait) fn has_tokens_with_others(&self, queue: &WaitQueue) -> bool {
        queue.has_tokens_with_others(&self.places)
    }

    /// What stands in the way of a spot in the queue of a key: see [`WaitQueue::in_the_way_of`].
    pub(in crate::wait) fn in_the_way_of(
        &self,
        (queue, name): (&WaitQueue, &[u8]),
        spot: &Spot,
        asker: Option<&Spot>,
        budget: &mut Budget,
    ) -> Option<InTheWay> {
        queue.in_the_way_of(spot, asker, name, &self.places, budget)
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
        let Some(queue) = self.queues.of(key) else {
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
        let queue = self.queues.of(key)?;
        queue.wakes_at(&self.places, lock, now)
    }

    /// All that waits for a key, in the order in which it stands.
    pub fn waiters<'a>(&'a self, db: i32, name: &[u8]) -> impl Iterator<Item = Waiter<'a, L>> {
        let queue = self.queues.named(db, name).into_iter();
        let ids = queue.flat_map(|(name, key)| key.queue.iter().map(move |id| (name, id)));
        let places = ids.filter_map(|(name, id)| Some((name, id, self.places.get(id)?)));
        let places = places.filter(|(.., place)| !self.changes.end(place));
        places.flat_map(move |(name, id, place)| {
            let among = place.mode_among(name);
            let waiter = move |mode, listener, result: Option<&'a Rc<[u8]>>| Waiter {
                token: place.token.text(),
                mode: among.unwrap_or(mode),
                since_us: place.since_us,
                listener,
                result: result.map(|name| &**name),
            };
            let absent = place
                .is_absent()
                .then(|| waiter(place.mode(), None, self.results.of_place(id)));
            let requests = place.iter().map(move |(seq, request)| {
                let listener = Some(&request.listener);
                waiter(request.mode(), listener, self.results.of_request(id, seq))
            });
            absent.into_iter().chain(requests)
        })
    }

    /// A reference to a key that nobody waits for.
    pub fn new_key_ref(&self, db: i32, name: &[u8]) -> KeyRef {
        self.queues.new_key_ref(db, name)
    }

    /// The reference to a key that is waited for.
    pub fn key_ref(&self, db: i32, name: &[u8]) -> Option<KeyRef> {
        self.queues.key_ref(db, name)
    }

    /// The keys of a token's place that stands in the queue of this one, if it is for several.
    #[cfg(test)]
    pub(crate) fn several_at(&self, key: &KeyRef, token: Token<'_>) -> Option<Rc<Several>> {
        let id = self.place_of_token(key, token)?;
        self.places.get(id)?.keys.several().cloned()
    }

    /// Whether there is something to do now: marked keys, databases that have changed, or places
    /// that end.
    pub fn has_work(&self) -> bool {
        !self.marks.is_empty() || self.is_behind() || !self.endings.is_empty()
    }

    /// Whether there is memory to give back.
    pub fn has_spare(&self) -> bool {
        self.places.has_spare() || self.queues.others.has_spare()
    }

    /// When there is something to do.
    pub fn due(&self) -> Due {
        Due {
            at_once: self.has_work() || self.has_spare(),
            wakes_at_ms: self.queues.wakes_at_ms(),
            times_out_at_us: self.timeouts.first(),
        }
    }

    /// Whether every table has as many entries as there are places, and none is left of those
    /// before.
    #[cfg(test)]
    pub(crate) fn is_tight(&self) -> bool {
        assert!(!self.is_unfinished());
        self.assert_tokens_tight();
        self.assert_oldest_tight();
        self.results.assert_tight(&self.places);
        for (db, _, key) in self.queues.iter() {
            let is_behind = self.changes.is_behind(db, key.queue.seen_change());
            assert!(!is_behind || self.is_behind(), "a queue that never follows");
        }
        let queues = self.queues.iter().map(|(.., key)| key);
        let mut ids: Vec<_> = queues.clone().flat_map(|key| key.queue.iter()).collect();
        ids.sort_unstable();
        // A place for several keys is in the queue of each, and of no other.
        for same in ids.chunk_by(|one, other| one == other) {
            let place = self.places.get(same[0]).unwrap();
            let queues = place.keys();
            let queues = queues.filter_map(|key| self.queues.of(key));
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
            for_several += usize::from(place.is_for_several_keys());
            assert!(!place.is_over());
            counts.add(&place.outline());
            due += usize::from(place.outline().due_us.is_some());
            for (seq, request) in place.iter() {
                match &request.listener {
                    Listener::Client(_) => clients += 1,
                    Listener::Channel(name) => {
                        let key = place.keys.first();
                        let id = self.place_of_token(key, place.token.text().as_token());
                        channels.insert((Rc::clone(name), id.unwrap()));
                        lingering += usize::from(self.listeners.lingers(seq));
                    }
                }
            }
        }
        self.queues.assert_tight();
        queued == self.len()
            && for_several == self.load.for_several
            && self.listeners.counts() == (clients, lingering)
            && self.listeners.channels.pairs() == channels
            && self.load.counts == counts
            && self.timeouts.len() == due
            && queues.clone().all(|key| key.queue.is_tight(&self.places))
    }
}
