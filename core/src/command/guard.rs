//! ```text
//! LOCK._GUARD left longest wait clock followers
//! ```
//! The words are the fields of [`Beat`]. `left` is `-1` where nobody knows. `followers` is what 0.3
//! said of replicas; nobody reads it. It is not written to the append-only file.

use super::args::integer;
use super::spec::{Arg, Flag, KeyWords, Spec};
use super::{apply, Args, Error};
use crate::lock::Deadline;

/// The description of LOCK._GUARD for the server.
pub const SPEC: Spec = Spec {
    name: c"lock._guard",
    summary: c"Tells replicas of the guard of their primary. Refused to clients.",
    complexity: c"O(1)",
    since: c"0.3.0",
    flags: &[Flag::DenyScript, Flag::Admin, Flag::Fast],
    keys: KeyWords::None,
    args: &[
        Arg::text(c"left"),
        Arg::text(c"longest"),
        Arg::text(c"wait"),
        Arg::text(c"clock"),
        Arg::text(c"followers"),
    ],
    ..apply::SPEC
};

/// What a primary tells its replicas of its guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// How long it lasts yet, in milliseconds. `None` if nobody knows.
    pub left_ms: Option<u64>,
    /// The longest lease that there may be, in milliseconds.
    pub longest_ms: u64,
    /// How long a guard lasts after a promotion, in milliseconds.
    pub wait_ms: u64,
    /// The wall clock of the primary, in microseconds.
    pub clock_us: u64,
}

/// Reads the arguments.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Beat, Error> {
    let (left, longest, wait) = (args.required()?, args.required()?, args.required()?);
    let (clock, _followers) = (args.required()?, args.required()?);
    args.finish()?;
    let number = |word| integer(word).ok_or(Error::BadEffect);
    // The server's file keeps these times, and cannot be loaded with longer ones.
    let time_ms = |word| match number(word)? {
        ms if ms <= Deadline::MAX_MS => Ok(ms),
        _ => Err(Error::BadEffect),
    };
    Ok(Beat {
        left_ms: match left {
            b"-1" => None,
            left => Some(time_ms(left)?),
        },
        longest_ms: time_ms(longest)?,
        wait_ms: time_ms(wait)?,
        clock_us: number(clock)?,
    })
}
