//! Who waits for which key, and what has changed: everything about waiting that the server's memory
//! holds.

mod answers;
mod changes;
mod channels;
mod ending;
mod endings;
mod enter;
mod finish;
mod grant;
mod leave;
mod links;
mod listeners;
mod load;
mod marking;
mod marks;
mod oldest;
mod patrol;
mod questions;
mod queues;
mod results;
mod room;
mod rounds;
mod slots;
mod spans;
mod step;
mod tokens;

use super::place::Places;
use super::schedule::Timeouts;

use changes::Changes;
use endings::Endings;
use listeners::Listeners;
use load::Load;
use patrol::Patrol;
use queues::Queues;
use results::Results;
use spans::Oldest;
use step::StepWork;
use tokens::Tokens;

pub use ending::{ChannelRequest, Ending};
pub use enter::{At, Entered, NewRequest};
pub use grant::{Candidate, Granted, Offer, Step, Terms, TurnAt};
pub use leave::{Removed, Rest};
pub use marks::Marks;
pub use questions::Waiter;
pub use room::{By, Comer, Full, Leaving, Limits};
pub use slots::{SlotQuestion, WaitedSlots};

/// All places, and all that is to be done for them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Registry<L, S> {
    /// Exactly the places in `queues` and `tokens`.
    places: Places<L>,
    queues: Queues<S>,
    tokens: Tokens<S>,
    oldest: Oldest,
    /// Exactly what listens at `places`.
    listeners: Listeners<L, S>,
    /// The sums over `places`.
    load: Load<S>,
    /// When the `places` are to be looked at.
    timeouts: Timeouts,
    /// Keys that have changed outside a command, and are to be looked at.
    pub marks: Marks,
    /// Whole databases that have changed. Their keys are not in `marks`.
    changes: Changes<S>,
    patrol: Patrol,
    step: StepWork,
    /// The places that a result answers.
    results: Results,
    endings: Endings,
    last_ticket: u64,
}

impl<L, S: Default> Default for Registry<L, S> {
    fn default() -> Self {
        Self {
            places: Places::default(),
            queues: Queues::default(),
            tokens: Tokens::default(),
            oldest: Oldest::default(),
            listeners: Listeners::default(),
            load: Load::default(),
            timeouts: Timeouts::default(),
            marks: Marks::default(),
            changes: Changes::default(),
            patrol: Patrol::default(),
            step: StepWork::default(),
            results: Results::default(),
            endings: Endings::default(),
            last_ticket: 0,
        }
    }
}
