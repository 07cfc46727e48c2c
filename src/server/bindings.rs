//! The bindings of holds to connections (LINGER), as commands and callbacks share them. The rules are those of
//! [`crate::wait::bindings`].
//!
//! The server tells of lost connections by an event, which costs it something at each connection. So the module listens to it only
//! from the first LINGER on, and looks the connection up before it leaves a note. A server on which nobody says LINGER pays one
//! comparison for each change of a lock.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::num::NonZeroU64;

use redis_module::raw;

use super::api::Context;
use crate::lock::{Fence, Lock, Now, Token};
use crate::wait::{self, KeyRef, Linger, Lost};

/// All bindings. Every method borrows them for itself only, and calls nothing that calls back.
#[derive(Default)]
pub(super) struct Bindings {
    table: RefCell<wait::Bindings>,
    /// Whether the table has anything: a copy that is fast to read.
    are_any: Cell<bool>,
    on_client: Cell<raw::RedisModuleEventCallback>,
    /// Whether the module hears of lost connections.
    listens: Cell<bool>,
}

impl Bindings {
    /// Names the function that the server is to call when a connection is lost, once at load.
    pub(super) fn set_callback(&self, on_client: raw::RedisModuleEventCallback) {
        self.on_client.set(on_client);
    }

    /// Has the server tell of lost connections from now on.
    pub(super) fn listen(&self, ctx: Context<'_>) {
        if !self.listens.get() {
            let event = raw::REDISMODULE_EVENT_CLIENT_CHANGE;
            let heard = ctx.on_server_event(event, self.on_client.get());
            self.listens.set(heard);
        }
    }

    /// Whether anybody has said LINGER since the server has started.
    pub(super) fn are_used(&self) -> bool {
        self.listens.get()
    }

    /// Whether any hold is bound, or was bound to a connection that is lost.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.are_any.get()
    }

    /// How many holds are bound; `None` in the middle of a change.
    pub(super) fn count(&self) -> Option<usize> {
        self.table.try_borrow().ok().map(|table| table.len())
    }

    /// Whether any hold is bound to a connection.
    pub(super) fn has_client(&self, client: NonZeroU64) -> bool {
        self.are_any() && self.table.borrow().has_client(client)
    }

    /// Whether the deadlines of any holds are to come forward.
    #[inline]
    pub(super) fn has_lost(&self) -> bool {
        self.are_any() && self.table.borrow().has_lost()
    }

    /// Whether the timer is to look at any of them yet.
    pub(super) fn has_untold(&self) -> bool {
        self.are_any() && self.table.borrow().has_untold()
    }

    fn change<R>(&self, act: impl FnOnce(&mut wait::Bindings) -> R) -> R {
        let mut table = self.table.borrow_mut();
        let result = act(&mut table);
        self.are_any.set(!table.is_empty());
        result
    }

    /// Binds a hold.
    pub(super) fn bind(&self, key_ref: KeyRef, token: Token<'_>, fence: Fence, linger: Linger) {
        self.change(|table| table.bind(key_ref, token, fence, linger));
    }

    /// Forgets the binding of a hold.
    pub(super) fn forget(&self, db: c_int, name: &[u8], fence: Fence) {
        self.change(|table| table.forget(Some(db), name, fence));
    }

    /// Forgets the bindings of a lock that leaves its key. `db` is `None` where the server does not say which.
    pub(super) fn lock_left(&self, db: Option<c_int>, name: &[u8], lock: &Lock) {
        if self.are_any() {
            let holders = lock.holders();
            let fences = holders.iter().map(|(_, hold)| hold.fence);
            self.change(|table| fences.for_each(|fence| table.forget(db, name, fence)));
        }
    }

    /// Forgets the bindings in a database that was emptied; `None` is all.
    pub(super) fn empty_db(&self, db: Option<c_int>) {
        self.change(|table| table.empty_db(db));
    }

    /// Follows SWAPDB.
    pub(super) fn swap_dbs(&self, one: c_int, other: c_int) {
        self.change(|table| table.swap_dbs(one, other));
    }

    /// Forgets all: the server has become a replica.
    pub(super) fn clear(&self) {
        self.change(wait::Bindings::clear);
    }

    /// Notes that a connection is lost.
    pub(super) fn lose(&self, client: NonZeroU64, now: Now) {
        self.change(|table| table.lose(client, now));
    }

    /// Some of the keys whose holds the timer is to end or to shorten.
    pub(super) fn next_untold(&self, most: usize) -> Vec<KeyRef> {
        match self.are_any() {
            true => self.change(|table| table.next_untold(most)),
            false => Vec::new(),
        }
    }

    /// Takes the holds of a key that are to be ended or shortened.
    pub(super) fn take_lost(&self, key_ref: &KeyRef) -> Vec<Lost> {
        self.change(|table| table.take_lost(key_ref))
    }

    /// Gives one of them back that cannot be changed yet.
    pub(super) fn put_back(&self, key_ref: &KeyRef, lost: Lost) {
        self.change(|table| table.put_back(key_ref, lost));
    }
}
