//! How many bytes everything that waits takes, nearly: what the module allocates, with the tables
//! that have an entry for it. A queue of one place has no table, so the parts are averages. A test
//! in `server/api/allocator.rs` compares them with what is allocated.

use super::keys::{Keys, Several, Wanted};
use crate::lock::Token;

/// A place: its slot, and its entries in the tables of tokens and of instants.
const PLACE: usize = 124;
/// The entries of a place in the queue of a key.
const SPOT: usize = 40;
/// A request, and the entry of its listener.
pub(super) const REQUEST: usize = 64;
/// A key with its queue, without its name.
const KEY: usize = 96;
/// A channel without its name.
const CHANNEL: usize = 80;
/// A result that a request takes, without its name.
const RESULT: usize = 320;
/// What a request has said by LINGER.
pub(super) const LINGER: usize = 80;

/// The most that a place with one request can take.
pub(super) fn most_of(token: Token<'_>, keys: &Keys) -> usize {
    let place = of_place(token.as_bytes().len(), keys).saturating_add(REQUEST);
    keys.iter()
        .fold(place, |sum, key| sum.saturating_add(of_key(&key.name)))
}

/// A place, without its requests and without the names of its keys. Its token has so many bytes on
/// the heap.
pub(super) fn of_place(of_token: usize, keys: &Keys) -> usize {
    // The queue of each key has a copy of the token.
    let spot = SPOT.saturating_add(of_token);
    let several = keys.several().map(|all| Several::count(all));
    let list = several.map_or(0, |count| count.saturating_mul(size_of::<Wanted>()));
    let all = spot.saturating_mul(several.unwrap_or(1));
    let all = all.saturating_add(list);
    PLACE.saturating_add(of_token).saturating_add(all)
}

pub(super) const fn of_key(name: &[u8]) -> usize {
    KEY.saturating_add(name.len())
}

/// The name of a result that a request takes, with its entries.
pub(super) const fn of_result(name: &[u8]) -> usize {
    RESULT.saturating_add(name.len())
}

pub(super) const fn of_channel(name: &[u8]) -> usize {
    CHANNEL.saturating_add(name.len())
}
