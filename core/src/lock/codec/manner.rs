//! What a record says of a hold before its numbers: its mode, and whether it lingers.

use super::super::hold::{Limit, Mode};
use super::version::DecodeError;

pub(super) const EXCLUSIVE: u8 = 1;
pub(super) const SHARED: u8 = 2;
pub(super) const COUNTED: u8 = 3;

/// Beside the mode: the hold ends with a connection.
const LINGERS: u8 = 128;

/// What is said of a hold.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) mode: Mode,
    pub(super) lingers: bool,
}

impl Manner {
    /// What the byte says. A counted hold has a limit behind it.
    pub(super) fn of(
        byte: u8,
        limit: impl FnOnce() -> Result<u32, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let mode = match byte & !LINGERS {
            EXCLUSIVE => Mode::Exclusive,
            SHARED => Mode::Shared,
            COUNTED => Mode::Counted(Limit::new(limit()?).ok_or(DecodeError)?),
            _ => return Err(DecodeError),
        };
        let lingers = byte & LINGERS != 0;
        Ok(Self { mode, lingers })
    }
}

/// The byte that says it.
#[inline]
pub(super) const fn mode_byte(mode: Mode, lingers: bool) -> u8 {
    let byte = match mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => SHARED,
        Mode::Counted(_) => COUNTED,
    };
    if lingers {
        byte | LINGERS
    } else {
        byte
    }
}
