//! The events of keys for those who listen to them.

/// An event of a key. The shell says when each is sent (`server/observe/notify.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An acquire was granted at once.
    Acquire,
    /// An acquire was granted after a wait.
    Handover,
    /// A hold has a new deadline.
    Renew,
    /// A hold was released or revoked.
    Release,
    /// The deadlines of holds have passed.
    Expire,
    /// A lock with a live hold has left its key.
    Forced,
}
