//! The decided change of a lock. It is applied, written to the append-only file and sent to
//! replicas.

use super::fence::Fence;
use super::hold::{Hold, Mode};
use super::state::{Fate, Lock};
use super::time::Deadline;
use super::token::Token;

/// A change of one lock. Every instant in it is absolute, so applying it needs no clock and no
/// choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// From now on the token has this hold, whatever it had before. The hold was granted, taken
    /// again, renewed or converted.
    Hold {
        /// The instant of the decision. Holds that are over at that instant are dropped.
        now_ms: u64,
        /// Exclusive, shared or counted.
        mode: Mode,
        /// The owner.
        token: Token<'a>,
        /// The hold.
        hold: Hold,
    },
    /// The token's hold has ended.
    Release {
        /// The instant of the decision. Holds that are over at that instant are dropped.
        now_ms: u64,
        /// The owner.
        token: Token<'a>,
    },
    /// No hold lasts beyond this deadline.
    Cap {
        /// The deadline that a command of the server has set for the key.
        deadline: Deadline,
    },
}

impl Effect<'_> {
    /// Applies the effect to a key that is absent. Returns the new lock, if there is one.
    pub fn apply_to_absent(&self) -> Option<Lock> {
        match *self {
            Self::Hold {
                mode, token, hold, ..
            } => Some(Lock::new(mode, token, hold)),
            Self::Release { .. } | Self::Cap { .. } => None,
        }
    }

    /// Changes a lock in place. An effect that does not fit the lock, as on a replica that has
    /// diverged, still leaves a well-formed lock.
    pub fn apply_to(&self, lock: &mut Lock) -> Fate {
        match *self {
            Self::Hold {
                now_ms,
                mode,
                token,
                hold,
            } => {
                // Holds that are over must not remain beside the new one.
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

    /// The fence in the effect, for the fence clock of the server that applies it.
    pub const fn fence(&self) -> Option<Fence> {
        match self {
            Self::Hold { hold, .. } => Some(hold.fence),
            Self::Release { .. } | Self::Cap { .. } => None,
        }
    }
}
