//! The commands: one file for each. It has the command's grammar, its description as data
//! ([`spec::Spec`]), its parser and its decision. A command is parsed completely before the lock is
//! looked at, and then decided. The shell carries out the [`Decision`].
//!
//! A few commands have less: the shell decides the internal ones and LOCK.RESETSTAT.

pub mod acquire;
pub mod apply;
pub mod apply_release;
mod args;
pub mod check;
mod error;
pub mod exec;
pub mod info;
pub mod log;
pub mod macquire;
#[cfg(test)]
mod properties;
pub mod release;
pub mod renew;
pub mod resetstat;
pub mod rlock;
pub mod spec;
pub mod top;
pub mod wlock;
pub mod writable;

pub(crate) use args::integer;
pub use args::Args;
pub use error::Error;

use crate::lock::{Effect, Fence, Refusal};

/// The decision on a command, made on the current state of the lock.
#[derive(Debug)]
pub enum Decision<'a> {
    /// The lock changes, and the client gets a reply.
    Change {
        /// The change.
        effect: Effect<'a>,
        /// The reply.
        reply: Reply<'a>,
        /// Whether the token had a hold before.
        had_it: bool,
    },
    /// Nothing changes.
    Same(Reply<'a>),
    /// Nothing changes now. The client waits if it asked to, and gets null otherwise.
    Wait(Refusal),
}

/// A command's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The fence of a hold.
    Fence(Fence),
    /// The server-generated token, and the fence of its hold.
    Made(&'a [u8], Fence),
    /// 1 for yes, 0 for no.
    Done(bool),
    /// Not granted.
    Null,
    /// The request is malformed, or cannot be carried out.
    Error(Error),
}
