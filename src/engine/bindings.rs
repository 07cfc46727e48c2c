//! The bindings of holds to connections (LINGER), as commands and callbacks share them. The rules
//! are those of [`crate::wait::bindings`].
//!
//! The server tells of lost connections by an event, which costs it something at each connection.
//! So the module listens to it only from the first LINGER on, and looks the connection up before it
//! leaves a note. A server on which nobody says LINGER pays one comparison for each change of a
//! lock.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;

use crate::lock::{Fence, Lock, Now, Token};
use crate::wait::{self, KeyRef, Linger, Lost};

/// All bindings. Every method borrows them for itself only, and calls nothing that calls back.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub struct Bindings {
    table: RefCell<wait::Bindings>,
    /// Whether the table has anything: a copy that is fast to read.
    are_any: Cell<bool>,
}

impl Bindings {
    /// Whether any hold is bound, or was bound to a connection that is lost.
    #[inline]
    pub fn are_any(&self) -> bool {
        self.are_any.get()
    }

    /// How many holds are bound; `None` in the middle of a change.
    pub fn count(&self) -> Option<usize> {
        self.table.try_borrow().ok().map(|table| table.len())
    }

    /// Whether any hold is bound to a connection.
    pub fn has_client(&self, client: NonZeroU64) -> bool {
        self.are_any() && self.table.borrow().has_client(client)
    }

    /// Whether a hold is bound.
    pub fn has(&self, db: i32, name: &[u8], fence: Fence) -> bool {
        self.are_any() && self.table.borrow().has(db, name, fence)
    }

    /// Whether a hold is over by the loss of its connection, and stands in its lock yet.
    pub fn is_over(&self, key_ref: &KeyRef, fence: Fence, now: Now) -> bool {
        self.table.borrow().is_over(key_ref, fence, now)
    }

    /// Whether the deadlines of any holds are to come forward.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.are_any() && self.table.borrow().has_lost()
    }

    /// Whether the timer is to look at any of them yet.
    pub fn has_untold(&self) -> bool {
        self.are_any() && self.table.borrow().has_untold()
    }

    fn change<R>(&self, act: impl FnOnce(&mut wait::Bindings) -> R) -> R {
        let mut table = self.table.borrow_mut();
        let result = act(&mut table);
        self.are_any.set(!table.is_empty());
        result
    }

    /// Binds a hold.
    pub fn bind(&self, key_ref: KeyRef, token: Token<'_>, fence: Fence, linger: Linger) {
        self.change(|table| table.bind(key_ref, token, fence, linger));
    }

    /// Forgets the binding of a hold.
    pub fn forget(&self, db: i32, name: &[u8], fence: Fence) {
        self.change(|table| table.forget(Some(db), name, fence));
    }

    /// Forgets that the connection of a hold is lost.
    pub fn forget_lost(&self, db: i32, name: &[u8], fence: Fence) {
        if self.has_lost() {
            self.change(|table| table.forget_lost(Some(db), name, fence));
        }
    }

    /// Forgets the bindings of a lock that leaves its key. `db` is `None` where the server does not
    /// say which.
    pub fn lock_left(&self, db: Option<i32>, name: &[u8], lock: &Lock) {
        if self.are_any() {
            self.change(|table| table.lock_left(db, name, lock));
        }
    }

    /// Forgets the bindings in a database that was emptied; `None` is all.
    pub fn empty_db(&self, db: Option<i32>) {
        self.change(|table| table.empty_db(db));
    }

    /// Follows SWAPDB.
    pub fn swap_dbs(&self, one: i32, other: i32) {
        self.change(|table| table.swap_dbs(one, other));
    }

    /// Forgets all: the server has become a replica.
    pub fn clear(&self) {
        self.change(wait::Bindings::clear);
    }

    /// Notes that a connection is lost.
    pub fn lose(&self, client: NonZeroU64, now: Now) {
        self.change(|table| table.lose(client, now));
    }

    /// Some of the keys whose holds the timer is to end or to shorten.
    pub fn next_untold(&self, most: usize) -> Vec<KeyRef> {
        match self.are_any() {
            true => self.change(|table| table.next_untold(most)),
            false => Vec::new(),
        }
    }

    /// Takes the holds of a key that are to be ended or shortened.
    pub fn take_lost(&self, key_ref: &KeyRef) -> Vec<Lost> {
        self.change(|table| table.take_lost(key_ref))
    }

    /// Gives one of them back that cannot be changed yet.
    pub fn put_back(&self, key_ref: &KeyRef, lost: Lost) {
        self.change(|table| table.put_back(key_ref, lost));
    }
}
