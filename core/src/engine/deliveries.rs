//! Grants on their way to blocked clients, and those that nobody has heard of.
//!
//! The server frees the reply of a client that it has told, or that was gone before. All that is
//! needed then travels with the reply ([`crate::wait::Delivery`]). The owner of a new hold may have
//! heard of it in another way meanwhile, because another of its requests was answered. So the
//! fences of answers are noted while any grant is under way: until the end of the server's turn.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::lock::Fence;
use crate::wait::{Granted, Listener};

/// How many grants are under way, and of which holds the owners have heard meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    under_way: Cell<usize>,
    /// Empty while no grant is under way.
    heard: RefCell<BTreeSet<Fence>>,
}

impl Deliveries {
    /// Notes that a grant is on its way, if it is a client that has waited.
    pub(super) fn begin<L>(&self, granted: &Granted<L>) {
        if let Some(Listener::Client(_)) = granted.removed.listener {
            self.under_way.set(self.under_way.get().saturating_add(1));
        }
    }

    /// Notes that the owner of a hold was answered.
    #[inline]
    pub(super) fn hear(&self, fence: Fence) {
        if self.under_way.get() > 0 {
            self.heard.borrow_mut().insert(fence);
        }
    }

    /// Notes that a grant has arrived, or never will. Whether its owner was answered meanwhile.
    #[inline]
    pub(super) fn end(&self, fence: Fence) -> bool {
        debug_assert!(self.under_way.get() > 0, "a delivery that has not begun");
        let mut heard = self.heard.borrow_mut();
        let is_heard = heard.contains(&fence);
        self.under_way.set(self.under_way.get().saturating_sub(1));
        if self.under_way.get() == 0 {
            heard.clear();
        }
        is_heard
    }
}
