//! Grants on their way to blocked clients, and those that nobody has heard of.
//!
//! The server frees the reply of a client that it has told, or that was gone before. All that is
//! needed then travels with the reply ([`Delivery`]). The owner of a new hold may have heard of it
//! in another way meanwhile: another of its requests was answered. So the fences of answers are
//! noted while any grant is under way, which is mostly until the end of the running command.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::machine::Shared;
use super::types::Types;
use crate::lock::Fence;
use crate::planted::planted;
use crate::wait::{Delivery, Granted, Listener};

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

    /// Whether its owner was answered meanwhile.
    fn end(&self, fence: Fence) -> bool {
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

impl<T: Types> Shared<T> {
    /// A client was told of its grant.
    pub fn delivered(&self, delivery: &Delivery) {
        self.deliveries.end(delivery.fence);
        self.deliveries.hear(delivery.fence);
        if self.bindings.are_any() {
            self.bindings.change(|all| all.heard(delivery));
        }
    }

    /// A client was gone before it heard of its grant. Whether the timer has anything to do.
    pub fn lost(&self, delivery: &Delivery) -> bool {
        let is_heard = self.deliveries.end(delivery.fence);
        let ends = delivery.is_new && !is_heard && !planted("unheard-grants-stay");
        if ends {
            self.bindings.change(|all| all.unheard(delivery));
        }
        ends
    }
}
