//! One lock: what it is, how requests about it are decided, and how it changes.
//!
//! This layer uses std only: no server, no clock, no randomness, no `unsafe`.
//!
//! # The model
//!
//! A lock is free or held. While it is held, it is a non-empty set of **holds**. A [`Hold`] belongs
//! to a [`Token`] (the owner's name) and has a [`Deadline`] and a [`Fence`]. A token has at most
//! one hold on a lock. The [`Mode`] of a hold says how many holders it tolerates, itself included:
//! one (*exclusive*), any number (*shared*), or up to its [`Limit`] (*counted*). There are never
//! more holders than the smallest of these numbers.
//!
//! # How it changes
//!
//! A request is decided against the current state of the lock ([`Lock::acquire`],
//! [`Lock::release`], [`Lock::renew`]). A decision changes nothing: it is a refusal or an
//! [`Effect`]. [`Effect::apply_to`] is the only way in which a lock changes.
//!
//! The server that decides applies the effect. It also writes the effect to its append-only file
//! and sends it to its replicas, which apply it too. Nothing in `apply_to` reads a clock or makes
//! a choice, so a replay ends in the same state, byte for byte.
//!
//! # Invariants
//!
//! - Between effects, a [`Lock`] has at least one hold. A lock without holds is `None`, and its key
//!   is absent.
//! - There are never more holds than any of them tolerates. So an exclusive hold is the only one.
//! - Time is an argument. A hold lives while `now <= deadline` and is over when `now > deadline`.
//!   The keys of the server follow the same rule.
//! - A hold that is over counts for nothing in any decision. The next effect that touches the lock
//!   drops it. The effect carries the instant of its decision, so all servers drop the same holds.
//! - A deadline is set by a request (now + ttl). Only [`Effect::Cap`] brings it forward.
//! - The waiters of a lock are not part of it: [`crate::wait`] is a layer of its own. The facts
//!   about waiters that a decision needs are an argument ([`Waiting`]).

pub mod codec;
mod compact;
mod decide;
mod effect;
#[cfg(test)]
pub(crate) mod effort;
mod fence;
mod hold;
mod segmented;
mod shared;
#[cfg(test)]
mod simulation;
pub mod slot;
mod state;
mod time;
mod token;

pub use compact::{CompactToken, TokenText};
pub use decide::{Ask, Grant, Refusal, Waiting};
pub use effect::Effect;
pub use fence::{Fence, FenceClock};
pub use hold::{Hold, Limit, Mode, Occupancy, Since};
pub use segmented::Segmented;
pub use state::{Fate, Lock};
pub use time::{Deadline, Now, Ttl};
pub use token::{Token, TokenBuf, TokenError};
