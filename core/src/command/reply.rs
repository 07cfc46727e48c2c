//! What a command answers.

use super::Error;
use crate::lock::Fence;

/// A command's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The fence of a hold.
    Fence(Fence),
    /// The server-generated token, or an early result, and the fence of the hold.
    Pair(&'a [u8], Fence),
    /// A result.
    Value(&'a [u8]),
    /// 1 for yes, 0 for no.
    Done(bool),
    /// How many there were.
    Count(usize),
    /// Not granted yet: the end of the wait is published.
    Queued,
    /// Not granted.
    Null,
    /// The request is malformed, or cannot be carried out.
    Error(Error),
}
