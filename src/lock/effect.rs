//! The decided change of a lock: what is applied, written to the append-only file and sent to replicas.

use super::fence::Fence;
use super::state::{Hold, Lock, Mode};
use super::time::Deadline;
use super::token::Token;

/// A change of one lock, with every instant in it absolute. To apply it needs no clock and makes no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// From now on the token has this hold, whatever it had before: granted, taken again, renewed or converted.
    Hold {
        /// When it was decided; holds that are over at that instant are dropped.
        now_ms: u64,
        /// Exclusive or shared.
        mode: Mode,
        /// Whose.
        token: Token<'a>,
        /// The hold.
        hold: Hold,
    },
    /// The token's hold has ended.
    Release {
        /// When it was decided; holds that are over at that instant are dropped.
        now_ms: u64,
        /// Whose.
        token: Token<'a>,
    },
    /// No hold lasts beyond this deadline.
    Cap {
        /// The deadline that the key was given from outside.
        deadline: Deadline,
    },
}

/// What is left of a lock after an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fate {
    /// Somebody holds it.
    Held,
    /// Nobody does: the value is spent, and its key is to be deleted.
    Free,
}

impl Fate {
    pub(super) const fn free_if(free: bool) -> Self {
        if free {
            Self::Free
        } else {
            Self::Held
        }
    }
}

impl Effect<'_> {
    /// What becomes of a key that is absent: a new lock, or nothing.
    pub fn apply_to_absent(&self) -> Option<Lock> {
        match *self {
            Self::Hold {
                mode, token, hold, ..
            } => Some(Lock::new(mode, token, hold)),
            Self::Release { .. } | Self::Cap { .. } => None,
        }
    }

    /// Changes a lock in place. Total: an effect that does not fit the lock, as on a replica that has diverged, still ends in
    /// a well-formed lock.
    pub fn apply_to(&self, lock: &mut Lock) -> Fate {
        match *self {
            Self::Hold {
                now_ms,
                mode,
                token,
                hold,
            } => {
                // The holds that are over must not stay beside the new one.
                match lock.purge(now_ms) {
                    Fate::Held => lock.put(mode, token, hold),
                    Fate::Free => *lock = Lock::new(mode, token, hold),
                }
                Fate::Held
            }
            Self::Release { now_ms, token } => match lock.purge(now_ms) {
                Fate::Held => lock.remove(token),
                Fate::Free => Fate::Free,
            },
            Self::Cap { deadline } => {
                lock.cap_deadlines(deadline);
                Fate::Held
            }
        }
    }

    /// The fence in it, for the fence clock of the server that applies it.
    pub const fn fence(&self) -> Option<Fence> {
        match self {
            Self::Hold { hold, .. } => Some(hold.fence),
            Self::Release { .. } | Self::Cap { .. } => None,
        }
    }
}
