//! Waiting: who waits for which key, in which order, and what is due when. Plain data and decisions about it. Std only: no server,
//! no clock, no `unsafe`. It is generic over the **listener** `L`, whatever the shell answers when a wait ends.
//!
//! # The rules
//!
//! 1. **One queue per key** ([`queue`]), first in, first out, for readers and writers. It exists while somebody waits.
//! 2. **A grant is one step** ([`Registry::grant_next`]): the head is decided as if it came now, leaves the queue, and its
//!    delivery begins. The caller carries out the effect before it does anything else with the key.
//! 3. **Whoever removes an entry ends its wait**, exactly once: a grant, a refusal, a timeout, an error for all, a listener that
//!    is gone. A listener that is not in the registry has been answered.
//! 4. **A mark** says that a key has changed outside a command. Callbacks of the server only mark; commands and the timer serve.
//! 5. **A grant that nobody hears of is revoked** ([`delivery`]), unless its owner has learned of it otherwise.
//! 6. **Two clocks.** Locks end by the wall clock, as keys do. Timeouts of waiters run on a clock that nobody can set.

pub mod delivery;
pub mod key_ref;
mod place;
mod queue;
#[cfg(test)]
mod queue_simulation;
pub mod registry;
pub mod schedule;
#[cfg(test)]
mod simulation;
mod slab;

pub use delivery::{Deliveries, Delivery, Grant, Kept, Revoked};
pub use key_ref::{KeyRef, ANY_DB};
pub use place::{Counts, Listener};
pub use registry::{
    Ahead, Entered, Granted, NewRequest, Offer, Registry, Removed, Rest, Step, Waiter,
};
pub use schedule::Due;
