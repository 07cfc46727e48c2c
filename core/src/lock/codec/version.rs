//! Which version of the format a record is written in.
//!
//! # The rule
//!
//! - **A record is written in the lowest version that can say it.** This is decided record by
//!   record. A server on which nobody uses a newer feature writes the bytes of the oldest release,
//!   and older servers read all of them.
//! - **A record is accepted only in the version that it needs.** A value has one encoding, so equal
//!   locks have equal bytes and equal digests on every server.
//! - **A record of a later version is recognised by its first byte,** whatever its kind is. It is
//!   refused as a whole. A reader that guessed at it could lose a hold.
//!
//! # The versions
//!
//! | version | what needs it | written since |
//! | --- | --- | --- |
//! | 1 | every record that needs no later version | 0.1 |
//! | 2 | a record with a counted hold, which has a limit | 0.2 |
//! | 3 | a record with a hold that lingers, and the `leases`; both of a server with a guard | 0.3 |
//!
//! Only the kinds `state`, `hold` and `held` carry a hold. The kinds `release`, `cap` and `fence`
//! carry none and stay in version 1.
//!
//! # How to add a version
//!
//! 1. Name it here and make it [`Version::LATEST`].
//! 2. Say in [`Version::needed_by_hold`] which holds need it. A new field of a hold and a new mode
//!    do not compile before that.
//! 3. Read and write the new field in `mode` or `hold_without_token`, `put_mode` or `put_hold`, and
//!    `encode_held`.
//! 4. Pin its bytes in a new file in `tests/golden/records`.

use super::super::hold::{Hold, Mode};

/// The bytes are not a record that this release knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

/// A version of the format: the first byte of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u8);

impl Version {
    pub(super) const V1: Self = Self(1);
    pub(super) const V2: Self = Self(2);
    pub(super) const V3: Self = Self(3);

    /// The newest version that this release reads and writes.
    pub(super) const LATEST: Self = Self::V3;

    /// The version of a record that begins with `byte`; `None` where this release does not know it.
    pub(super) const fn known(byte: u8) -> Option<Self> {
        if byte < Self::V1.0 || byte > Self::LATEST.0 {
            return None;
        }
        Some(Self(byte))
    }

    /// The first byte of a record of this version.
    pub(super) const fn byte(self) -> u8 {
        self.0
    }

    /// The lowest version that can say a hold in this mode.
    ///
    /// The patterns name every field and every mode, so that a new one needs a decision here.
    pub(super) const fn needed_by_hold(mode: Mode, hold: &Hold) -> Self {
        let Hold {
            fence: _,
            deadline: _,
            since,
        } = hold;
        match mode {
            _ if since.lingers() => Self::V3,
            Mode::Exclusive | Mode::Shared => Self::V1,
            Mode::Counted(_) => Self::V2,
        }
    }
}
