//! Who waits for which key, and what has changed: everything about waiting that the server's memory
//! holds. The rules ([`crate::rules`]) work on it.

mod agenda;
mod answers;
mod apply;
mod claims;
#[cfg(test)]
mod costs;
mod cycles;
mod endings;
mod marks;
mod questions;
mod room;
mod rounds;
mod step;

use crate::book::Indexed;

pub use agenda::{Agenda, Marks};
pub use apply::Terms;
pub use claims::{Candidate, TurnAt};
pub use endings::Ending;
pub use questions::Waiter;
pub use room::{LimitMet, Limits, ListensBy, Newcomer};

/// All places, and all that is to be done for them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Registry<L, S> {
    book: Indexed<L, S>,
    /// What is to be done some time soon.
    pub agenda: Agenda,
}

impl<L, S: Default> Default for Registry<L, S> {
    fn default() -> Self {
        Self {
            book: Indexed::default(),
            agenda: Agenda::default(),
        }
    }
}
