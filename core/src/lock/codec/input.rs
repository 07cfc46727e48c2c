//! Reads the fields of a record. Every bound is checked here.

use super::super::fence::Fence;
use super::super::hold::{Hold, Occupancy, Since};
use super::super::state::Lock;
use super::super::time::Deadline;
use super::super::token::Token;
use super::manner::Manner;
use super::version::{DecodeError, Version};

/// What a server with a guard saves beside its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    /// The largest fence that it has given, if any.
    pub fence: Option<Fence>,
    /// How long the longest lease may last from now on, in milliseconds.
    pub longest_ms: u64,
    /// How long its guard lasts after a promotion, in milliseconds.
    pub wait_ms: u64,
}

/// A record that is being read.
pub(super) struct Input<'a> {
    pub(super) rest: &'a [u8],
    /// The version that the record says it is in.
    pub(super) version: Version,
    /// The lowest version that can say what has been read so far.
    pub(super) needed: Version,
}

impl<'a> Input<'a> {
    /// Begins to read a record. Refuses versions that this release does not know.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (version, rest) = bytes.split_first().ok_or(DecodeError)?;
        Ok(Self {
            rest,
            version: Version::known(*version).ok_or(DecodeError)?,
            needed: Version::V1,
        })
    }

    /// Ends the reading. Refuses bytes that are left over, and a version that is not the one
    /// needed.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if !self.rest.is_empty() || self.version != self.needed {
            return Err(DecodeError);
        }
        Ok(())
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(DecodeError)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn deadline(&mut self) -> Result<Deadline, DecodeError> {
        Deadline::from_millis(self.u64()?).ok_or(DecodeError)
    }

    /// An instant, with the same bound as a deadline.
    pub(super) fn time_ms(&mut self) -> Result<u64, DecodeError> {
        self.deadline().map(Deadline::ms)
    }

    pub(super) fn fence(&mut self) -> Result<Fence, DecodeError> {
        Fence::new(self.u64()?).ok_or(DecodeError)
    }

    pub(super) fn manner(&mut self) -> Result<Manner, DecodeError> {
        let byte = self.u8()?;
        Manner::of(byte, || self.array().map(u32::from_le_bytes))
    }

    pub(super) fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let len = self.array().map(u16::from_le_bytes)?;
        Token::new(self.take(len.into())?).map_err(|_| DecodeError)
    }

    pub(super) fn hold(&mut self, manner: Manner) -> Result<(Token<'a>, Hold), DecodeError> {
        let hold = self.hold_without_token(manner)?;
        Ok((self.token()?, hold))
    }

    pub(super) fn hold_without_token(&mut self, manner: Manner) -> Result<Hold, DecodeError> {
        let hold = Hold {
            fence: self.fence()?,
            deadline: self.deadline()?,
            since: Since::at(self.time_ms()?).marked(manner.lingers),
        };
        let needed = Version::needed_by_hold(manner.mode, &hold);
        self.needed = self.needed.max(needed);
        Ok(hold)
    }

    pub(super) fn leases(&mut self) -> Result<Leases, DecodeError> {
        self.needed = Version::V3;
        let fence = self.u64()?;
        Ok(Leases {
            fence: match fence {
                0 => None,
                fence => Some(Fence::new(fence).ok_or(DecodeError)?),
            },
            longest_ms: self.time_ms()?,
            wait_ms: self.time_ms()?,
        })
    }

    pub(super) fn state(&mut self) -> Result<Lock, DecodeError> {
        let mut manner = self.manner()?;
        let (token, hold) = self.hold(manner)?;
        let mut lock = Lock::new(manner.mode, token, hold);
        let mut occupancy = Occupancy::NONE;
        occupancy.add(manner.mode);
        let mut last = (hold.fence, token);
        while !self.rest.is_empty() {
            if self.version > Version::V1 {
                manner = self.manner()?;
            }
            let (token, hold) = self.hold(manner)?;
            let mode = manner.mode;
            // The encoder writes one order only, so any other order is not its own. No lock has
            // more holds than all of them tolerate.
            if !occupancy.admits(mode) || (hold.fence, token) <= last {
                return Err(DecodeError);
            }
            occupancy.add(mode);
            last = (hold.fence, token);
            lock.put(mode, token, hold);
        }
        // A token that came twice has replaced its own hold.
        if lock.len() != occupancy.holders {
            return Err(DecodeError);
        }
        Ok(lock)
    }
}
