//! Requests of the world's clients.

use super::Scene;
use crate::lock::{Mode, Ttl};

/// What a token asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Take {
        mode: Mode,
        token: u8,
        ttl: u64,
        limits: Limits,
        /// For how long its place is kept, in milliseconds; 0 is not at all.
        keep: u32,
    },
    Release(u8),
    /// ATLEAST, in milliseconds.
    ReleaseLater(u8, u64),
    Renew(u8, u64),
    Check(u8),
    /// LOCK.EXEC, before its command runs.
    Exec(u8),
    /// LOCK.CANCEL, of one token or of all.
    Cancel(Option<u8>),
}

/// How it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limits {
    NoWait,
    Forever,
    Until(u64),
    /// A channel is to be told.
    Notify,
    NotifyUntil(u64),
}

impl Limits {
    pub(super) fn times_out_at_us(self, scene: &Scene) -> Option<u64> {
        match self {
            Self::Until(ms) | Self::NotifyUntil(ms) => Some(scene.mono_us + ms * 1_000),
            _ => None,
        }
    }

    pub(super) fn is_channel(self) -> bool {
        matches!(self, Self::Notify | Self::NotifyUntil(_))
    }
}

impl Request {
    pub(super) fn token(self) -> u8 {
        match self {
            Self::Take { token, .. }
            | Self::Release(token)
            | Self::ReleaseLater(token, _)
            | Self::Renew(token, _)
            | Self::Check(token)
            | Self::Exec(token) => token,
            Self::Cancel(token) => token.unwrap_or_default(),
        }
    }

    pub(super) fn ttl(self) -> Ttl {
        match self {
            Self::Take { ttl, .. } | Self::Renew(_, ttl) => Ttl::from_millis(ttl).unwrap(),
            _ => Ttl::from_millis(1).unwrap(),
        }
    }
}
