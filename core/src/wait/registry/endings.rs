//! Many places that end for one reason. There may be a million, so from some number on they end a
//! few at a time, and none of them is granted until then.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::rc::Rc;

use crate::rules::key_ref::KeyRef;
use crate::rules::place::{PlaceId, Seq, Ticket};

/// How many places end at once.
pub(super) const MOST: usize = 1_000;

/// What ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Endings {
    /// The places of these keys, up to a ticket.
    pub(super) cancelled: BTreeMap<KeyRef, Ticket>,
    /// The requests that listen by these channels.
    pub(super) unheard: BTreeMap<Rc<[u8]>, Unheard>,
    /// The requests that end with these connections (LINGER), which are lost.
    pub(super) lost: BTreeSet<NonZeroU64>,
}

/// The requests of a channel that nobody has listened to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unheard {
    /// The last one. Later ones may be heard.
    pub(super) last: Seq,
    /// How far the way through the places of the channel has come.
    pub(super) seen: Option<PlaceId>,
}

impl Endings {
    pub(super) fn is_empty(&self) -> bool {
        self.cancelled.is_empty() && self.unheard.is_empty() && self.lost.is_empty()
    }

    /// Whether nothing is granted for a key for now.
    pub(super) fn hold_back(&self, key: &KeyRef) -> bool {
        self.cancelled.contains_key(key)
    }

    /// Whether a request has ended, because nobody has listened to its channel.
    pub(super) fn has(&self, channel: &[u8], seq: Seq) -> bool {
        let all = self.unheard.get(channel);
        all.is_some_and(|all| seq <= all.last)
    }
}
