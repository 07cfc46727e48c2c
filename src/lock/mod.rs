//! The core: what a lock is and how it changes. Std only: no server, no clock, no randomness, no `unsafe`.
//!
//! # The model
//!
//! A lock is free or held. While it is held it is a non-empty set of **holds**: either one *exclusive* hold or any
//! number of *shared* ones. A [`Hold`] belongs to a [`Token`] (the owner's name) and has a [`Deadline`] and a
//! [`Fence`]. A token has at most one hold on a lock.
//!
//! # How it changes
//!
//! A request is decided against the lock as it stands ([`Lock::acquire`], [`Lock::release`], [`Lock::renew`]). A decision
//! changes nothing: it is a refusal or an [`Effect`], and [`Effect::apply_to`] is the only way a lock changes. The server
//! that decides applies its effect and sends the same bytes to its replicas and its append-only file, which apply them too.
//! Nothing in `apply_to` reads a clock or makes a choice, so a replay ends in the same state, byte for byte.
//!
//! # Invariants
//!
//! - Between effects a [`Lock`] has at least one hold; the lock that would have none is `None`, and the key absent.
//! - An exclusive hold is alone.
//! - Time is an argument. A hold lives while `now <= deadline` and is over when `now > deadline`, as a key of the server is.
//!   A hold that is over counts for nothing in any decision, and is dropped by the next effect that touches the lock; the
//!   effect carries the instant at which it was decided, so that all servers drop the same holds.
//! - A deadline only ever follows from a request (now + ttl) or is brought down by [`Effect::Cap`].
//! - Whoever waits for a lock is not part of it: [`crate::wait`] is a layer of its own. What a decision must know of the waiters is
//!   an argument ([`Waiting`]).

pub mod codec;
mod compact;
mod effect;
mod fence;
mod readers;
#[cfg(test)]
mod simulation;
pub mod slot;
mod state;
mod time;
mod token;

pub use compact::{CompactToken, TokenText};
pub use effect::{Effect, Fate};
pub use fence::{Fence, FenceClock, FenceExhausted};
pub use state::{Ask, Grant, Hold, Lock, Mode, Refusal, Waiting};
pub use time::{Deadline, Now, Ttl};
pub use token::{Token, TokenBuf, TokenError};
