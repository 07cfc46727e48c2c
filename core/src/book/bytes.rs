//! How many bytes everything that waits takes, nearly: what the module allocates, with the tables
//! that have an entry for it. A table may have just doubled, so the parts are averages. A test in
//! `server/api/allocator.rs` compares them with what is allocated.

use crate::lock::Token;
use crate::rules::keys::{Keys, Several, Wanted};
use crate::rules::place::Place;

/// A place with its slot and its instant.
const PLACE: usize = 284;
/// The entries of a place in the order of a key, and under its token.
const SPOT: usize = 50;
/// A request, and the entry of its listener.
pub(crate) const REQUEST: usize = 40;
/// A key with its queue, without its name.
const KEY: usize = 168;
/// A channel without its name.
const CHANNEL: usize = 130;
/// A result that a request takes, without its name.
const RESULT: usize = 320;
/// What a request has said by LINGER.
pub(crate) const LINGER: usize = 80;

/// A place, without its requests and without the names of its keys.
pub(crate) fn of_place<L>(place: &Place<L>) -> usize {
    of_new_place(place.token.heap_bytes(), &place.keys)
}

/// The same before it is there. Its token has so many bytes on the heap.
pub(crate) fn of_new_place(of_token: usize, keys: &Keys) -> usize {
    let several = keys.several().map(|all| Several::count(all));
    let list = several.map_or(0, |count| count.saturating_mul(size_of::<Wanted>()));
    let spots = SPOT.saturating_mul(several.unwrap_or(1));
    PLACE
        .saturating_add(of_token)
        .saturating_add(list)
        .saturating_add(spots)
}

/// The most that a new place with one request can take.
pub(crate) fn most_of(token: Token<'_>, keys: &Keys) -> usize {
    let place = of_new_place(token.as_bytes().len(), keys).saturating_add(REQUEST);
    keys.iter()
        .fold(place, |sum, key| sum.saturating_add(of_key(&key.name)))
}

pub(crate) const fn of_key(name: &[u8]) -> usize {
    KEY.saturating_add(name.len())
}

/// The name of a result that a request takes, with its entries.
pub(crate) const fn of_result(name: &[u8]) -> usize {
    RESULT.saturating_add(name.len())
}

pub(crate) const fn of_channel(name: &[u8]) -> usize {
    CHANNEL.saturating_add(name.len())
}
