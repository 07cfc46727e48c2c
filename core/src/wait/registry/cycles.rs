//! The search for cycles of waits, through the registry. [`crate::wait::cycle`] is the search.

use std::hash::BuildHasher;

use super::Registry;
use crate::lock::{Lock, Now};
use crate::rules::cycle::Search;
use crate::rules::key_ref::KeyRef;
use crate::rules::place::{Place, Ticket};
use crate::rules::Book;

/// How many holders, or how many places, are looked at to see whether a search is needed.
const FIRST_LOOK: usize = 1_000;

impl<L, S: BuildHasher> Registry<L, S> {
    /// Whether a wait for a key with this lock may have closed a cycle, so that a search is needed.
    /// `None`: there is too much to look at.
    pub fn may_close(&self, key: &KeyRef, lock: Option<&Lock>, now: Now) -> Option<bool> {
        let book = &self.book;
        let id = book.queues.id_of(key);
        if id.is_some_and(|id| book.elsewhere_too(id, Ticket::END).next().is_some()) {
            return Some(true);
        }
        let here = self.counts_of(key.db, &key.name).all();
        let elsewhere = self.len().saturating_sub(here);
        let Some(lock) = lock.filter(|_| elsewhere > 0) else {
            return Some(false);
        };
        if lock.len().min(elsewhere) > FIRST_LOOK {
            return None;
        }
        let is_elsewhere = |place: &Place<L>| place.ids.iter().any(|other| Some(*other) != id);
        if lock.len() <= elsewhere {
            let mut holders = lock.live_holders(now).map(|(holder, _)| holder);
            return Some(holders.any(|holder| {
                let places = book.places_of(&holder);
                let mut places = places.filter_map(|place| book.place(place));
                places.any(is_elsewhere)
            }));
        }
        let mut places = (0..book.slots()).filter_map(|n| book.nth(n));
        Some(places.any(|(_, place)| {
            let token = place.token.text();
            is_elsewhere(place) && lock.hold_of(token.as_token(), now).is_some()
        }))
    }

    /// The next key whose lock is to be shown to [`Registry::look_at`].
    pub fn next_key(&self, search: &mut Search) -> Option<KeyRef> {
        search.next_key(&self.book)
    }

    /// Has a search look at the key that [`Registry::next_key`] has named.
    pub fn look_at(&self, search: &mut Search, lock: Option<&Lock>, now: Now) {
        search.look_at(&self.book, lock, now);
    }
}
