//! The machine: what a command, a lost client, a turn of the timer or a change from outside does
//! to locks and waiters.
//!
//! It knows no server, no clock and no `unsafe`. What it needs of a server are the traits of
//! [`host`]. The shell implements them by the module API. The simulation implements them in
//! memory, so it runs the same code as a server.

mod arrive;
mod bindings;
mod budget;
pub mod cancel;
mod check;
mod claim;
pub mod command;
pub mod commit;
mod count;
mod deadlock;
mod deliveries;
mod ending;
mod event;
mod fences;
pub mod guard;
mod guarding;
pub mod host;
mod inbox;
mod linger;
mod look;
mod machine;
pub mod macquire;
mod message;
mod notes;
mod once;
mod overdue;
pub mod printable;
mod serve;
pub mod several;
#[cfg(test)]
mod simulation;
pub mod sweep;
mod take;
pub mod tick;
mod types;

pub use check::{check, must_hold, serve_results};
pub use count::Count;
pub use event::Event;
pub use inbox::Note;
pub use machine::{Machine, Shared};
pub use message::{Message, Outcome};
pub use take::take_hold;
pub use types::Types;
