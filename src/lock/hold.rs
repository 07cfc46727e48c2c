//! A hold: the part that one token has in a lock.

use super::fence::Fence;
use super::time::Deadline;

/// How a hold relates to the other holds of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The only hold of the lock: that of a writer, or of a mutex.
    Exclusive,
    /// One of any number of shared holds: that of a reader.
    Shared,
}

impl Mode {
    /// The mode's name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// The part that one token has in a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The number given with the hold. A renewal, a repeated request and a conversion keep it.
    pub fence: Fence,
    /// When the hold ends by itself.
    pub deadline: Deadline,
    /// When the hold was first granted, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}
