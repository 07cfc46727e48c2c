//! Waiting: what the layers above see of [`rules`](crate::rules) and `book`, with all that is to be
//! done some time soon. Plain data and decisions about it: no server and no clock. It is generic
//! over `L`, a blocked client of the shell.
//!
//! - [`registry`] carries out what the rules say.
//! - [`bindings`] ties holds to connections (LINGER).

pub mod bindings;
pub mod contended;
mod due;
mod lost;
pub mod registry;

pub use bindings::Bindings;
pub use contended::{Contended, Waits};
pub use due::Due;
pub use lost::{Delivery, Lost, LostEnd};
pub use registry::{
    Candidate, Ending, LimitMet, Limits, ListensBy, Marks, Newcomer, Registry, Terms, TurnAt,
    Waiter,
};

pub use crate::book::counts::Counts;
pub use crate::book::slots::{SlotQuestion, WaitedSlots};
pub use crate::rules::come::{Came, Entered, NewRequest, PlaceBefore};
pub use crate::rules::cycle;
pub use crate::rules::grant::{ChannelRequest, Granted, Offer, Step};
pub use crate::rules::key_ref::{self, KeyRef};
pub use crate::rules::keys::{self, Keys, Several, Wanted};
pub use crate::rules::leave::{Leaving, Removed};
pub use crate::rules::place::{Linger, Listener};
