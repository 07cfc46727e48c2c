//! Who waits for which key, and what has changed: everything about waiting that the server's memory
//! holds. The rules ([`crate::rules`]) work on it.

mod agenda;
mod answers;
mod claims;
mod come;
#[cfg(test)]
mod costs;
mod cycles;
mod endings;
mod leave;
mod marks;
mod questions;
mod room;
mod rounds;
mod serve;
mod step;

use crate::book::Indexed;

pub use agenda::{Agenda, Marks};
pub use claims::{Candidate, TurnAt};
pub use come::{Came, Entered, NewRequest, PlaceBefore};
pub use endings::{ChannelRequest, Ending};
pub use leave::{PlaceAfter, Removed};
pub use questions::Waiter;
pub use room::{Leaving, LimitMet, Limits, ListensBy, Newcomer};
pub use serve::{Granted, Offer, Step, Terms};

/// All places, and all that is to be done for them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Registry<L, S> {
    book: Indexed<L, S>,
    /// What is to be done some time soon.
    pub agenda: Agenda,
    last_ticket: u64,
}

impl<L, S: Default> Default for Registry<L, S> {
    fn default() -> Self {
        Self {
            book: Indexed::default(),
            agenda: Agenda::default(),
            last_ticket: 0,
        }
    }
}
