//! The agenda: what is to be done some time soon for those who wait.
//!
//! - [`Marks`]: keys to look at, because they have changed outside a command.
//! - [`StepWork`]: what a step leaves to do before it ends.
//! - [`Endings`]: many places that end for one reason. From some number on they end a few at a
//!   time, and none of them is granted until then.
//! - [`Changes`]: FLUSHALL, FLUSHDB and SWAPDB change whole databases. Such a change marks no key,
//!   because there may be very many. It only gets a number. A queue knows the last change that it
//!   has followed, and follows the later ones when its key is looked at next. The timer goes
//!   through all places, a few at a time, so that each queue follows soon.
//! - [`Patrol`]: it looks at waited keys now and then, because nobody tells of some changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::num::NonZeroU64;
use std::rc::Rc;

use crate::book::Indexed;
use crate::rules::key_ref::KeyRef;
use crate::rules::place::{Place, PlaceId, Seq, Ticket};

/// All of it. `S` is how its tables hash.
#[derive(Clone, Debug, Default)]
pub struct Agenda<S> {
    /// Keys to look at. Those of changed databases are not among them.
    pub marks: Marks,
    pub(super) step: StepWork,
    pub(super) endings: Endings,
    pub(super) changes: Changes<S>,
    pub(super) patrol: Patrol,
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

/// The changes of all databases.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes<S> {
    /// The number of the last one, from 1.
    pub(super) last: u32,
    pub(super) of_dbs: HashMap<i32, DbChange, S>,
    /// The way through all places since the last change. When it is over, no queue is behind.
    pub(super) lap: Lap,
}

/// The last changes of a database.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DbChange {
    /// Each of its keys may have lost its lock, or got another one.
    pub(super) replaced: u32,
    /// It was emptied.
    pub(super) emptied: u32,
}

/// A way through all places, in a circle: it begins where the last one has ended, so that no place
/// is left out where one way begins before the last is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Lap {
    at: usize,
    left: usize,
    /// How many slots the table had when the way began. It leads through these, also if the table
    /// grows.
    slots: usize,
}

impl Lap {
    /// Begins a way through this many slots of the table of places, or all.
    pub(super) fn begin<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>, most: usize) {
        self.slots = book.slots();
        self.left = self.slots.min(most);
        // The table may have shrunk since.
        if self.at >= self.slots {
            self.at = 0;
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Whether the table has shrunk since the way began: no place of that time is left.
    pub(super) fn is_of_the_past<L, S: BuildHasher>(&self, book: &Indexed<L, S>) -> bool {
        self.slots > book.slots()
    }

    /// The place where it is now. `None` where there is none.
    pub(super) fn here<'p, L, S: BuildHasher>(
        &self,
        book: &'p Indexed<L, S>,
    ) -> Option<(PlaceId, &'p Place<L>)> {
        book.nth(self.at)
    }

    /// Goes on by one slot.
    pub(super) fn go_on<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        let slots = match self.left {
            0 => book.slots(),
            _ => self.slots.min(book.slots()),
        };
        self.left = self.left.saturating_sub(1);
        self.at = match self.at.saturating_add(1) {
            next if next < slots => next,
            _ => 0,
        };
    }
}

impl<S: BuildHasher> Changes<S> {
    pub(super) fn of(&self, db: i32) -> DbChange {
        self.of_dbs.get(&db).copied().unwrap_or_default()
    }

    /// Whether no queue is behind.
    pub(super) const fn are_followed(&self) -> bool {
        self.lap.is_over()
    }

    /// Whether nobody has listened at a place since before its database was emptied, so that it is
    /// over.
    pub(super) fn end<L>(&self, place: &Place<L>) -> bool {
        let emptied = || self.of(place.keys.first().db).emptied;
        !self.are_followed() && place.is_absent_since_before(emptied())
    }

    /// Whether a queue that has followed this change is behind.
    #[cfg(test)]
    pub(super) fn is_behind(&self, db: i32, seen: u32) -> bool {
        seen < self.of(db).replaced
    }
}

/// How many keys a patrol looks at, and how many places it passes. With more of them, each has its
/// turn later.
const KEYS: usize = 1_000;
const PLACES: usize = 10_000;

/// How far it has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Patrol {
    pub(super) lap: Lap,
    keys_left: usize,
}

impl Patrol {
    /// Begins one, unless one is on its way.
    pub(super) fn begin<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>) {
        if self.is_over() || self.lap.is_of_the_past(book) {
            self.lap.begin(book, PLACES);
            self.keys_left = KEYS;
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.lap.is_over() || self.keys_left == 0
    }

    /// Goes on by one place, which was the first one of so many keys.
    pub(super) fn go_on<L, S: BuildHasher>(&mut self, book: &Indexed<L, S>, keys: usize) {
        self.lap.go_on(book);
        self.keys_left = self.keys_left.saturating_sub(keys);
    }
}
