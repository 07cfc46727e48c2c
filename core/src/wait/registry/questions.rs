//! Questions. They change nothing.

use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::rc::Rc;

use super::Registry;
use crate::book::counts::Counts;
use crate::lock::{Deadline, Lock, Mode, Now, Token, TokenText, Waiting};
use crate::rules::key_ref::KeyRef;
use crate::rules::keys::Keys;
#[cfg(test)]
use crate::rules::keys::Several;
use crate::rules::place::{Listener, PlaceId};
use crate::rules::{turn, Book};
use crate::wait::due::Due;

/// One request that waits, or a place without a listener, for those who ask.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a, L> {
    /// For whom.
    pub token: TokenText<'a>,
    /// Exclusive, shared or counted.
    pub mode: Mode,
    /// When its place was taken, on the monotonic clock.
    pub since_us: u64,
    /// Whatever listens; `None` is nobody.
    pub listener: Option<&'a Listener<L>>,
    /// The result that answers its place.
    pub result: Option<&'a [u8]>,
}

/// How many keys [`Registry::longest_waits`] looks at.
const MOST_WAITED: usize = 50_000;

impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether nobody waits anywhere, and no place is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many places there are, for all keys.
    pub fn len(&self) -> usize {
        self.book.len()
    }

    /// How many there are of each kind, for all keys.
    pub fn counts(&self) -> Counts {
        self.book.load.counts
    }

    /// How many bytes all of it takes, nearly.
    pub const fn bytes(&self) -> usize {
        self.book.bytes()
    }

    /// How many there are of each kind, for one key. It looks at none of them.
    pub fn counts_of(&self, db: i32, name: &[u8]) -> Counts {
        let queue = self.book.queues.id(db, name);
        let queue = queue.and_then(|id| self.book.queues.get(id));
        queue.map_or_else(Counts::default, |queue| queue.counts)
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
        self.book.of_token(self.book.queues.id_of(key)?, token)
    }

    /// The places of a key in the order in which they stand.
    pub(super) fn all_at(&self, key: &KeyRef) -> impl Iterator<Item = PlaceId> + '_ {
        let id = self.book.queues.id_of(key).into_iter();
        id.flat_map(|id| self.book.places_at(id))
    }

    /// Whether a token waits for any of these keys by another request than one for exactly these,
    /// in the same modes. Nobody listens at an absent place, so its modes do not matter.
    pub fn waits_otherwise(&self, keys: &Keys, token: Token<'_>) -> bool {
        let place = self.place_of(keys, token);
        let place = place.and_then(|id| self.book.place(id));
        place.is_some_and(|place| !place.keys.are(keys, !place.is_absent()))
    }

    /// Whether there is any place for several keys.
    pub const fn has_several(&self) -> bool {
        self.book.load.for_several > 0
    }

    /// Whether a request ends with this connection: it listens by a channel, and has said LINGER.
    pub fn has_lingering(&self, client: NonZeroU64) -> bool
    where
        L: Copy + Eq + Hash,
    {
        self.book.listeners.of_connection(client).next().is_some()
    }

    /// For how many keys there are places.
    pub fn waited_key_count(&self) -> usize {
        self.book.queues.len()
    }

    /// Whether somebody waits for a key, or has a place there.
    pub fn is_waited_for(&self, key: &KeyRef) -> bool {
        self.book.queues.id_of(key).is_some()
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
        let Some(id) = self.book.queues.id_of(key) else {
            return Waiting::default();
        };
        let converts = turn::exclusive_convert(&self.book, id);
        let converts = converts.and_then(|id| self.book.place(id));
        Waiting {
            any: turn::must_wait(&self.book, id, (token, mode), lock, now),
            other_upgrades: converts.is_some_and(|place| !place.token.is(token)),
        }
    }

    /// When the passing of time alone may let a request of this key in.
    pub fn wakes_at(&self, key: &KeyRef, lock: Option<&Lock>, now: Now) -> Option<Deadline> {
        turn::wakes_at(&self.book, self.book.queues.id_of(key)?, lock, now)
    }

    /// All that waits for a key, in the order in which it stands.
    pub fn waiters<'a>(&'a self, db: i32, name: &[u8]) -> impl Iterator<Item = Waiter<'a, L>> {
        let key = self.book.queues.id(db, name).into_iter();
        let ids = key.flat_map(|key| self.book.places_at(key).map(move |id| (key, id)));
        let places = ids.filter_map(|(key, id)| Some((key, id, self.book.place(id)?)));
        let places = places.filter(|(.., place)| !self.was_emptied(place));
        places.flat_map(move |(key, id, place)| {
            let among = place.mode_among(key);
            let waiter = move |mode, listener, result: Option<&'a Rc<[u8]>>| Waiter {
                token: place.token.text(),
                mode: among.unwrap_or(mode),
                since_us: place.since_us,
                listener,
                result: result.map(|name| &**name),
            };
            let results = &self.book.results;
            let absent = place.is_absent();
            let absent = absent.then(|| waiter(place.mode(), None, results.of_place(id)));
            let requests = place.requests.iter().map(move |request| {
                let listener = Some(&request.listener);
                waiter(request.mode, listener, results.of_request(id, request.seq))
            });
            absent.into_iter().chain(requests)
        })
    }

    /// The keys of a database with the longest waits, the longest first, `most` at most: each with
    /// the number of its places, and since when the first one is there, on the monotonic clock. Of
    /// more than 50,000 keys it looks at so many.
    pub fn longest_waits(&self, db: i32, most: usize) -> Vec<(KeyRef, usize, u64)> {
        let queues = self.book.queues.iter();
        let here = queues
            .filter(|(_, queue)| queue.key.db == db)
            .take(MOST_WAITED);
        let waits = here.filter_map(|(id, queue)| {
            let first = self.book.place(self.book.first_at(id)?)?;
            Some((first.ticket, queue, first.since_us))
        });
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable_by(|one, other| {
            let by_key = || one.1.key.cmp(&other.1.key);
            one.0.cmp(&other.0).then_with(by_key)
        });
        waits.truncate(most);
        let waits = waits.into_iter();
        let waits =
            waits.map(|(_, queue, since_us)| (queue.key.clone(), queue.counts.all(), since_us));
        waits.collect()
    }

    /// A reference to a key that nobody waits for.
    pub fn new_key_ref(&self, db: i32, name: &[u8]) -> KeyRef {
        self.book.queues.new_key_ref(db, name)
    }

    /// The reference to a key that is waited for.
    pub fn key_ref(&self, db: i32, name: &[u8]) -> Option<KeyRef> {
        self.book.queues.key_ref(db, name)
    }

    /// The keys of a token's place that stands in the queue of this one, if it is for several.
    #[cfg(test)]
    pub(crate) fn several_at(&self, key: &KeyRef, token: Token<'_>) -> Option<Rc<Several>> {
        let id = self.place_of_token(key, token)?;
        self.book.place(id)?.keys.several().cloned()
    }

    /// Whether there is something to do now: marked keys, databases that have changed, or places
    /// that end.
    pub fn has_work(&self) -> bool {
        !self.agenda.marks.is_empty() || self.is_behind() || !self.agenda.endings.is_empty()
    }

    /// When there is something to do.
    pub fn due(&self) -> Due {
        Due {
            at_once: self.has_work(),
            wakes_at_ms: self.book.queues.wakes_at_ms(),
            times_out_at_us: self.book.due().map(|(at_us, _)| at_us),
        }
    }

    /// Whether every table has as many entries as there are places, and none is left of those
    /// before.
    #[cfg(test)]
    pub(crate) fn is_tight(&self) -> bool
    where
        L: Copy + Eq + Hash,
    {
        assert!(!self.is_unfinished());
        let mut queues = self.book.queues.iter().map(|(_, queue)| queue);
        let is_behind = queues.any(|queue| queue.is_behind);
        assert!(!is_behind || self.is_behind(), "a queue that never follows");
        let ids = self.book.assert_tight();
        self.assert_sums_tight(&ids);
        true
    }
}
