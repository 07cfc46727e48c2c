//! The agenda: what is to be done some time soon for those who wait.
//!
//! - [`Marks`]: keys to look at, because they have changed outside a command.
//! - [`StepWork`]: what a step leaves to do before it ends.
//! - [`Endings`]: many places that end for one reason. From some number on they end a few at a
//!   time, and none of them is granted until then.
//! - [`Pass`]: a way through all places, a few at a time. On it queues follow changes of whole
//!   databases (FLUSHALL, FLUSHDB and SWAPDB), which mark no key, because there may be very many.
//!   And it looks at waited keys now and then, because nobody tells of some changes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::rc::Rc;

use crate::book::Indexed;
use crate::rules::key_ref::KeyRef;
use crate::rules::place::{Place, PlaceId, Seq, Ticket};

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    /// Keys to look at. Those of changed databases are not among them.
    pub marks: Marks,
    pub(super) step: StepWork,
    pub(super) endings: Endings,
    pub(super) pass: Pass,
}

/// Marked keys.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Those that the timer looks at in this turn. All come before those of `later`.
    in_turn: BTreeSet<KeyRef>,
    /// Those that were marked since the turn began.
    later: BTreeSet<KeyRef>,
}

impl Marks {
    pub(super) fn add(&mut self, key: KeyRef) {
        self.later.insert(key);
    }

    /// Takes the mark of a key. Whether it had one.
    pub fn remove(&mut self, key: &KeyRef) -> bool {
        let was_in_turn = self.in_turn.remove(key);
        self.later.remove(key) || was_in_turn
    }

    /// Whether a key has one.
    pub fn has(&self, key: &KeyRef) -> bool {
        self.later.contains(key) || self.in_turn.contains(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_turn.is_empty() && self.later.is_empty()
    }

    /// Takes all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Begins a turn of the timer, unless the last one is not over. Keys that are marked from now
    /// on come in a later turn.
    pub fn begin_turn(&mut self) {
        if self.in_turn.is_empty() {
            std::mem::swap(&mut self.later, &mut self.in_turn);
        }
    }

    /// Takes the mark of the next key of the turn.
    pub fn next_in_turn(&mut self) -> Option<KeyRef> {
        let key = self.in_turn.pop_first()?;
        self.later.remove(&key);
        Some(key)
    }

    /// Follows SWAPDB: a marked key counts as marked in both databases.
    pub(super) fn swap_dbs(&mut self, one: i32, other: i32) {
        let swapped = |key: &KeyRef| {
            let mut key = key.clone();
            key.swap_db(one, other).then_some(key)
        };
        let marked = self.in_turn.iter().chain(&self.later);
        let swapped: Vec<KeyRef> = marked.filter_map(swapped).collect();
        self.later.extend(swapped);
    }
}

/// What is left.
#[derive(Clone, Debug, Default)]
pub(super) struct StepWork {
    /// Places for several keys whose turn has come at one of them in this step, the oldest first.
    pub(super) candidates: BTreeSet<(Ticket, PlaceId)>,
    /// Keys that are to be served.
    pub(super) unserved: BTreeSet<KeyRef>,
    /// Whether it is being done. Whoever comes in between, by a call of the server that comes back,
    /// leaves all to it.
    pub(super) is_running: bool,
}

impl StepWork {
    pub(super) fn is_empty(&self) -> bool {
        self.candidates.is_empty() && self.unserved.is_empty()
    }
}

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
    #[inline]
    pub(super) fn hold_back(&self, key: &KeyRef) -> bool {
        self.cancelled.contains_key(key)
    }

    /// Whether a request has ended, because nobody has listened to its channel.
    pub(super) fn has(&self, channel: &[u8], seq: Seq) -> bool {
        let all = self.unheard.get(channel);
        all.is_some_and(|all| seq <= all.last)
    }
}

/// How many keys the pass looks at in one go, and how many places it passes for it. With more of
/// them, each has its turn later.
const KEYS: usize = 1_000;
const PLACES: usize = 10_000;

/// The pass over all places. It goes in a circle: it begins where it has stopped, so that no place
/// is left out where it begins for another reason before it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    at: usize,
    /// How many slots of the table of places the circle has. It leads through these, also if the
    /// table grows.
    slots: usize,
    /// For how many of them queues follow a change of their database.
    follows: usize,
    /// For how many of them, and for how many keys, the keys are looked at.
    looks: usize,
    keys_left: usize,
}

impl Pass {
    /// All queues are to follow a change.
    pub(super) fn follow<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        self.widen(book);
        self.follows = self.slots;
    }

    /// The next keys are to be looked at, unless they are.
    pub(super) fn look<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        // No place of the time when it began is left if the table has shrunk since.
        if !self.looks() || self.slots > book.slots() {
            self.widen(book);
            self.looks = self.slots.min(PLACES);
            self.keys_left = KEYS;
        }
    }

    fn widen<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        let more = book.slots().saturating_sub(self.slots);
        if self.follows() {
            self.follows = self.follows.saturating_add(more);
        }
        self.slots = book.slots();
        if self.at >= self.slots {
            self.at = 0;
        }
    }

    #[cfg(test)]
    pub(super) fn end_look(&mut self) {
        self.looks = 0;
    }

    /// Whether any queue may have to follow yet.
    pub(super) const fn follows(&self) -> bool {
        self.follows > 0
    }

    /// Whether it looks at keys.
    pub(super) const fn looks(&self) -> bool {
        self.looks > 0 && self.keys_left > 0
    }

    /// The place where it is now. `None` where there is none.
    pub(super) fn here<'p, L, S: BuildHasher>(
        &self,
        book: &'p Indexed<L, S>,
    ) -> Option<(PlaceId, &'p Place<L>)> {
        book.nth(self.at)
    }

    /// Goes on by one slot, at which it has looked at so many keys.
    pub(super) fn go_on<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>, keys: usize) {
        let slots = match self.follows() || self.looks() {
            false => book.slots(),
            true => self.slots.min(book.slots()),
        };
        self.follows = self.follows.saturating_sub(1);
        self.looks = self.looks.saturating_sub(1);
        self.keys_left = self.keys_left.saturating_sub(keys);
        self.at = match self.at.saturating_add(1) {
            next if next < slots => next,
            _ => 0,
        };
    }
}
