//! ```text
//! LOCK._GUARD left longest wait clock
//! ```
//! A primary tells its replicas of its guard: how long it lasts yet (`-1` where nobody knows), the
//! longest lease, and how long a guard lasts after a promotion, all in milliseconds. `clock` is its
//! wall clock, in microseconds. It is not written to the append-only file. Clients cannot call it.

use super::args::integer;
use super::spec::{Arg, Flag, KeyWords, Spec};
use super::{apply, Args, Error};

/// The description of LOCK._GUARD for the server.
pub const SPEC: Spec = Spec {
    name: c"lock._guard",
    summary: c"Tells replicas of the guard of their primary. Refused to clients.",
    complexity: c"O(1)",
    since: c"0.3.0",
    flags: &[Flag::DenyScript, Flag::Admin, Flag::Fast],
    acl_categories: c"admin dangerous fast",
    keys: KeyWords::None,
    args: &[
        Arg::text(c"left"),
        Arg::text(c"longest"),
        Arg::text(c"wait"),
        Arg::text(c"clock"),
    ],
    ..apply::SPEC
};

/// What a primary tells its replicas of its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
///
/// # Errors
/// If they are not numbers.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Beat, Error> {
    let (left, longest, wait) = (args.required()?, args.required()?, args.required()?);
    let clock = args.required()?;
    args.finish()?;
    let number = |word| integer(word).ok_or(Error::BadEffect);
    Ok(Beat {
        left_ms: match left {
            b"-1" => None,
            left => Some(number(left)?),
        },
        longest_ms: number(longest)?,
        wait_ms: number(wait)?,
        clock_us: number(clock)?,
    })
}
