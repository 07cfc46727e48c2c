//! The question before a search: is it needed at all?

use std::hash::BuildHasher;

use crate::lock::{Lock, Now, Token};
use crate::wait::key_ref::KeyRef;
use crate::wait::queue::WaitQueue;
use crate::wait::registry::Registry;

/// How many holders, or how many places, are looked at to see whether a search is needed.
const FIRST_LOOK: usize = 1_000;

/// Whether a wait for a key with this lock may close a cycle, so that a search is needed. `None`:
/// there is too much to look at.
pub fn may_close<L, S: BuildHasher>(
    registry: &Registry<L, S>,
    (db, name): (i32, &[u8]),
    token: Token<'_>,
    upgrades: bool,
    lock: Option<&Lock>,
    now: Now,
) -> Option<bool> {
    let queue = registry.queue(db, name);
    if queue.is_some_and(|queue| registry.has_tokens_with_others(queue)) {
        return Some(true);
    }
    let elsewhere = registry
        .len()
        .saturating_sub(queue.map_or(0, WaitQueue::len));
    if elsewhere == 0 {
        return Some(false);
    }
    // Then those in the line wait for it, and it may wait for another key by another request.
    if upgrades && registry.places_of(&token.into()).next().is_some() {
        return Some(true);
    }
    let Some(lock) = lock else {
        return Some(false);
    };
    if lock.len().min(elsewhere) > FIRST_LOOK {
        return None;
    }
    if lock.len() <= elsewhere {
        let is_here = |key_ref: &KeyRef| key_ref.db == db && *key_ref.name == *name;
        let mut holders = lock.live_holders(now).map(|(holder, _)| holder);
        return Some(holders.any(|holder| {
            let mut places = registry.places_of(&holder);
            places.any(|(_, place)| !place.keys().all(is_here))
        }));
    }
    Some(registry.places_elsewhere(db, name).any(|place| {
        let token = place.token.text();
        lock.hold_of(token.as_token(), now).is_some()
    }))
}
