//! Waiting: the places of tokens in the queues of keys, and what is due when. Plain data and
//! decisions about it: no server, no clock, no `unsafe`. It is generic over `L`, a blocked client
//! of the shell.
//!
//! - [`rules`] says who waits, who is next, and what a grant, an end or a loss does.
//! - `book` has all containers, and answers the questions of the rules.
//! - [`registry`] is both for the layers above, with all that is to be done some time soon.
//! - [`bindings`] ties holds to connections (LINGER).

pub mod bindings;
mod book;
pub mod contended;
mod due;
pub mod key_ref;
pub mod keys;
mod lost;
#[cfg(test)]
pub(crate) mod naive;
pub mod registry;
pub mod rules;

pub use bindings::{Bindings, Linger};
pub use book::slots::{SlotQuestion, WaitedSlots};
pub use contended::{Contended, Waits};
pub use due::Due;
pub use key_ref::KeyRef;
pub use keys::{Keys, Several, Wanted};
pub use lost::{Delivery, Lost, LostEnd};
pub use registry::{
    At, By, Came, Candidate, ChannelRequest, Comer, Ending, Entered, Full, Granted, Leaving,
    Limits, Marks, NewRequest, Offer, Registry, Removed, Rest, Step, Terms, TurnAt, Waiter,
};
pub use rules::counts::Counts;
pub use rules::cycle;
pub use rules::place::Listener;
