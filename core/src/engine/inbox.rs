//! Notes that callbacks leave: a callback runs in the middle of something of the server's, so it
//! changes nothing itself.
//!
//! Commands and the timer take the notes before they do their own work ([`super::Shared::drain`]).
//! A callback that leaves a note also sets the timer, so that the note is read in the same turn of
//! the server's event loop.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::num::NonZeroU64;

use super::guard::GuardEvent;

/// The most notes about keys. Beyond them, the inbox only remembers that many locks have left: a
/// script may delete millions.
const MOST_KEYS: usize = 1_000;

/// For how many notes there is room while there is none.
const MOST_SPARE: usize = 64;

/// What a callback has seen.
#[derive(Clone, Debug)]
pub enum Note<C> {
    /// A lock has left this key.
    Left { db: i32, name: Box<[u8]> },
    /// Locks have left more keys than the inbox notes one by one.
    ManyLeft,
    /// RESTORE has put a lock under this key, which may lack a ttl.
    Restored { db: i32, name: Box<[u8]> },
    /// FLUSHDB has emptied this database, or FLUSHALL has emptied all.
    Emptied { db: Option<i32> },
    /// SWAPDB has exchanged two databases.
    Swapped(i32, i32),
    /// A blocked client is gone: it was killed, it lost its connection, CLIENT UNBLOCK has answered
    /// it, or the server became a replica.
    Gone(C),
    /// This connection is lost, to which holds are bound, or with which requests end (LINGER).
    Disconnected(NonZeroU64),
    /// The keyspace is to be swept.
    SweepWanted,
    /// The server may not serve all its slots any more, or may serve more.
    SlotsChanged,
    /// What matters to the guard.
    Guard(GuardEvent),
    /// The server has become a replica. It may be a primary again by the time that the note is
    /// read.
    Demoted,
}

/// The notes that nobody has read yet, and what callbacks need to know.
#[derive(Clone)]
pub struct Inbox<C> {
    notes: RefCell<Vec<Note<C>>>,
    has_notes: Cell<bool>,
    /// How many notes are about keys that locks have left.
    left_keys: Cell<usize>,
    /// How many are about keys that RESTORE has written.
    restored_keys: Cell<usize>,
    is_sweep_wanted: Cell<bool>,
    /// Whether anybody waits: only then do the names of keys matter that locks have left.
    do_names_matter: Cell<bool>,
    /// Whether the change that the server reports is the module's own.
    is_own_change: Cell<bool>,
    /// Whether a lock has left its key since the timer has run last.
    has_lock_left: Cell<bool>,
    /// How often something has run that may change locks or waiters beside the running step.
    changes: Cell<u64>,
}

impl<C> Default for Inbox<C> {
    fn default() -> Self {
        Self {
            notes: RefCell::default(),
            has_notes: Cell::default(),
            left_keys: Cell::default(),
            restored_keys: Cell::default(),
            is_sweep_wanted: Cell::default(),
            do_names_matter: Cell::default(),
            is_own_change: Cell::default(),
            has_lock_left: Cell::default(),
            changes: Cell::default(),
        }
    }
}

impl<C> Inbox<C> {
    /// How often something has run that may change locks or waiters beside the running step:
    /// another command of the module, or a callback that reports a change. Whoever has looked at
    /// several keys compares it with the number from before ([`super::look`]).
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Notes that something runs that may change locks or waiters.
    #[inline]
    pub fn may_change(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
    }

    /// Leaves a note.
    pub fn leave(&self, note: Note<C>) {
        self.may_change();
        let note = match note {
            Note::Left { .. } => {
                let keys = self.left_keys.get();
                self.left_keys.set(keys.saturating_add(1));
                match keys.cmp(&MOST_KEYS) {
                    Ordering::Less => note,
                    Ordering::Equal => Note::ManyLeft,
                    Ordering::Greater => return,
                }
            }
            Note::Restored { .. } => {
                let keys = self.restored_keys.get();
                if keys >= MOST_KEYS {
                    // The sweep finds a lock without a ttl, too.
                    return self.leave(Note::SweepWanted);
                }
                self.restored_keys.set(keys.saturating_add(1));
                note
            }
            Note::Guard(GuardEvent::LongLease(left_ms, at_us)) => {
                // A file may have a million of them.
                if let Some(Note::Guard(GuardEvent::LongLease(longest_ms, since_us))) =
                    self.notes.borrow_mut().last_mut()
                {
                    (*longest_ms, *since_us) = (left_ms.max(*longest_ms), at_us);
                    return;
                }
                note
            }
            // A script may do so millions of times.
            Note::Emptied { db } if self.ends_with_emptied(db) => return,
            Note::SweepWanted if self.is_sweep_wanted.replace(true) => return,
            note => note,
        };
        self.notes.borrow_mut().push(note);
        self.has_notes.set(true);
    }

    /// Whether the last note is the same.
    fn ends_with_emptied(&self, db: Option<i32>) -> bool {
        matches!(self.notes.borrow().last(), Some(Note::Emptied { db: last }) if *last == db)
    }

    /// Whether there are notes to read.
    pub fn has_notes(&self) -> bool {
        self.has_notes.get()
    }

    /// Takes all notes, in the order in which they were left.
    pub fn take(&self) -> Vec<Note<C>> {
        self.has_notes.set(false);
        self.left_keys.set(0);
        self.restored_keys.set(0);
        self.is_sweep_wanted.set(false);
        self.notes.take()
    }

    /// Gives the room of notes that were taken back, so that the next note allocates nothing.
    pub fn give_back(&self, mut room: Vec<Note<C>>) {
        room.clear();
        let mut notes = self.notes.borrow_mut();
        if notes.capacity() == 0 && room.capacity() <= MOST_SPARE {
            *notes = room;
        }
    }

    /// Whether the names of keys matter that locks have left.
    pub fn do_names_matter(&self) -> bool {
        self.do_names_matter.get()
    }

    /// Notes whether they do.
    pub fn set_names_matter(&self, matter: bool) {
        self.do_names_matter.set(matter);
    }

    /// Makes a change that the callbacks are to pass over, because its key is served after it.
    pub fn suppress_unlink(&self, change: impl FnOnce()) {
        self.is_own_change.set(true);
        change();
        self.is_own_change.set(false);
    }

    /// Whether the change that the server reports is the module's own.
    pub fn is_own_change(&self) -> bool {
        self.is_own_change.get()
    }

    /// Notes that a lock has left its key. Answers whether that was noted before.
    pub fn lock_left(&self) -> bool {
        self.has_lock_left.replace(true)
    }

    /// Whether an absent key may be one that MIGRATE has just taken to another node of the cluster,
    /// in the running transaction.
    pub fn has_lock_left(&self) -> bool {
        self.has_lock_left.get()
    }

    /// Notes that the timer has fired: the cluster knows by now of all locks that have left.
    pub fn forget_left_locks(&self) {
        self.has_lock_left.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_keys_becomes_one_note() {
        let inbox = Inbox::<u32>::default();
        let left = || Note::Left {
            db: 0,
            name: b"k".as_slice().into(),
        };
        (0..3 * MOST_KEYS).for_each(|_| inbox.leave(left()));
        inbox.leave(Note::Swapped(0, 1));
        let notes = inbox.take();
        assert_eq!(notes.len(), MOST_KEYS + 2);
        assert!(matches!(notes[MOST_KEYS], Note::ManyLeft));
        assert!(matches!(notes[MOST_KEYS + 1], Note::Swapped(0, 1)));
        inbox.leave(left());
        assert!(matches!(inbox.take()[..], [Note::Left { .. }]));
    }

    #[test]
    fn a_flood_of_restored_keys_becomes_a_sweep() {
        let inbox = Inbox::<u32>::default();
        let restored = || Note::Restored {
            db: 0,
            name: b"k".as_slice().into(),
        };
        (0..3 * MOST_KEYS).for_each(|_| inbox.leave(restored()));
        let notes = inbox.take();
        assert_eq!(notes.len(), MOST_KEYS + 1);
        assert!(matches!(notes[MOST_KEYS], Note::SweepWanted));
        inbox.leave(restored());
        assert!(matches!(inbox.take()[..], [Note::Restored { .. }]));
    }

    #[test]
    fn a_flood_of_flushes_becomes_one_note() {
        let inbox = Inbox::<u32>::default();
        (0..3).for_each(|_| inbox.leave(Note::Emptied { db: Some(0) }));
        inbox.leave(Note::Emptied { db: None });
        assert_eq!(inbox.take().len(), 2);
    }

    #[test]
    fn a_sweep_is_wanted_once() {
        let inbox = Inbox::<u32>::default();
        (0..3).for_each(|_| inbox.leave(Note::SweepWanted));
        assert_eq!(inbox.take().len(), 1);
        assert!(!inbox.has_notes());
        inbox.leave(Note::SweepWanted);
        assert!(inbox.has_notes());
    }
}
