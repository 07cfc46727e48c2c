//! The bindings of holds to connections (LINGER), as commands and callbacks share them. The rules
//! are those of [`crate::wait::bindings`].
//!
//! The server tells of lost connections by an event, which costs it something at each connection.
//! So the module listens to it only from the first LINGER on, and looks the connection up before it
//! leaves a note. A server on which nobody says LINGER pays one comparison for each change of a
//! lock.

use std::cell::{Cell, RefCell};

use crate::wait;

/// All bindings. Every method borrows them for itself only, and what it is given to do with them
/// calls nothing that calls back.
#[derive(Clone, Default)]
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

    /// Whether the deadlines of any holds are to come forward.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.are_any() && self.table.borrow().has_lost()
    }

    /// Looks at the table, if it has anything.
    pub fn look<R: Default>(&self, look: impl FnOnce(&wait::Bindings) -> R) -> R {
        match self.are_any() {
            true => look(&self.table.borrow()),
            false => R::default(),
        }
    }

    /// Changes the table.
    pub fn change<R>(&self, act: impl FnOnce(&mut wait::Bindings) -> R) -> R {
        let mut table = self.table.borrow_mut();
        let result = act(&mut table);
        self.are_any.set(!table.is_empty());
        result
    }
}
