//! Who waits for which key, and what has changed: everything about waiting that the server's memory
//! holds. The rules ([`crate::rules`]) work on it.

mod answers;
mod changes;
mod claims;
mod come;
#[cfg(test)]
mod costs;
mod cycles;
mod ending;
mod endings;
mod finish;
mod leave;
mod marking;
mod marks;
mod patrol;
mod questions;
mod room;
mod rounds;
mod serve;
mod step;

use crate::book::Indexed;

use changes::Changes;
use endings::Endings;
use patrol::Patrol;
use step::StepWork;

pub use claims::{Candidate, TurnAt};
pub use come::{At, Came, Entered, NewRequest};
pub use ending::{ChannelRequest, Ending};
pub use leave::{Removed, Rest};
pub use marks::Marks;
pub use questions::Waiter;
pub use room::{By, Comer, Full, Leaving, Limits};
pub use serve::{Granted, Offer, Step, Terms};

/// All places, and all that is to be done for them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Registry<L, S> {
    book: Indexed<L, S>,
    /// Keys that have changed outside a command, and are to be looked at.
    pub marks: Marks,
    /// Whole databases that have changed. Their keys are not in `marks`.
    changes: Changes<S>,
    patrol: Patrol,
    step: StepWork,
    endings: Endings,
    last_ticket: u64,
}

impl<L, S: Default> Default for Registry<L, S> {
    fn default() -> Self {
        Self {
            book: Indexed::default(),
            marks: Marks::default(),
            changes: Changes::default(),
            patrol: Patrol::default(),
            step: StepWork::default(),
            endings: Endings::default(),
            last_ticket: 0,
        }
    }
}
