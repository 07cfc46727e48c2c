//! What a command decides, and what it answers.

use super::Error;
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
