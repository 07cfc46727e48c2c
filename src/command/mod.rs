//! The commands: one file for each, with its grammar. A command is parsed whole before anything is looked at, then decided
//! against the lock; what follows from the [`Decision`] is done by the server's shell.

pub mod acquire;
mod args;
mod error;
pub mod info;
pub mod release;
pub mod renew;
pub mod rlock;
pub mod wlock;

pub(crate) use args::integer;
pub use args::Args;
pub use error::Error;

use crate::lock::{Effect, Fence, Refusal};

/// What a command on the lock as it stands comes to.
#[derive(Debug)]
pub enum Decision<'a> {
    /// The lock changes, and the client is told.
    Change {
        /// How it changes.
        effect: Effect<'a>,
        /// What the client is told.
        reply: Reply<'a>,
        /// Whether the token has its hold before.
        had_it: bool,
    },
    /// Nothing changes.
    Same(Reply<'a>),
    /// Nothing changes now: the client may wait, if it said so. Else the reply is null.
    Wait(Refusal),
}

/// A command's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The fence of a hold.
    Fence(Fence),
    /// The token that the server made, and the fence of its hold.
    Made(&'a [u8], Fence),
    /// 1 for yes, 0 for no.
    Done(bool),
    /// Not granted.
    Null,
    /// Not understood, or not possible.
    Error(Error),
}
