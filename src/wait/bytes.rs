//! How many bytes everything that waits takes, nearly: what the module allocates, with the tables
//! that have an entry for it. Tables grow in steps, so the parts are averages. A test in
//! `server/api/allocator.rs` compares them with what is allocated.

use super::keys::{Keys, Several, Wanted};
use crate::lock::CompactToken;

/// A place: its slot, and its entries in the tables of tokens and of instants.
const PLACE: usize = 150;
/// The entries of a place in the queue of a key.
const SPOT: usize = 96;
/// A request, and the entry of its listener.
pub(super) const REQUEST: usize = 64;
/// A key with its queue, without its name.
const KEY: usize = 96;
/// A channel without its name.
const CHANNEL: usize = 80;
/// What a request has said by LINGER.
pub(super) const LINGER: usize = 80;

/// A place of a token, without its requests and without the names of its keys.
pub(super) fn of_place(token: &CompactToken, keys: &Keys) -> usize {
    // The queue of each key has a copy of the token.
    let spot = SPOT.saturating_add(token.heap_bytes());
    let several = keys.several().map(|all| Several::count(all));
    let list = several.map_or(0, |count| count.saturating_mul(size_of::<Wanted>()));
    let all = spot.saturating_mul(several.unwrap_or(1));
    let all = all.saturating_add(list);
    PLACE.saturating_add(token.heap_bytes()).saturating_add(all)
}

pub(super) const fn of_key(name: &[u8]) -> usize {
    KEY.saturating_add(name.len())
}

pub(super) const fn of_channel(name: &[u8]) -> usize {
    CHANNEL.saturating_add(name.len())
}
