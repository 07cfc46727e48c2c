//! ```text
//! LOCK.TOP [count] [CONTENDED]
//! ```

use super::args::integer;
use super::spec::{Arg, Flag, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error};

/// The description of LOCK.TOP for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.top",
    summary: c"Returns the most waited-for locks of the selected database.",
    complexity:
        c"O(N*log(K)+N*H) for N locks in the reply, K keys that are waited for and H holds of each.",
    since: c"0.3.0",
    // Admin: it shows the names of all keys.
    flags: &[Flag::ReadOnly, Flag::Admin],
    keys: KeyWords::None,
    args: &[
        Arg::integer(c"count").optional(),
        Arg::pure_token(c"contended", c"CONTENDED").optional(),
    ],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// How many locks are told where the request says no number.
const DEFAULT: usize = 10;

/// How many are told in one reply, whatever the request says.
const MOST: usize = 3_000;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// How many locks at most.
    pub count: usize,
    /// Whether the past is asked for, and not who waits now.
    pub is_contended: bool,
}

/// Reads what is wanted.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Top, Error> {
    let is_contended = |word: &[u8]| word.eq_ignore_ascii_case(b"CONTENDED");
    let words = (args.optional(), args.optional());
    args.finish()?;
    let (count, option) = match words {
        (Some(word), None) if is_contended(word) => (None, Some(word)),
        words => words,
    };
    let count = count.map_or(Ok(DEFAULT), |word| count_of(word).ok_or(Error::Count))?;
    if option.is_some_and(|word| !is_contended(word)) {
        return Err(Error::UnknownTopOption);
    }
    let is_contended = option.is_some();
    Ok(Top {
        count: count.min(MOST),
        is_contended,
    })
}

/// Reads an integer from 1 to 2^64 - 1.
pub(super) fn count_of(word: &[u8]) -> Option<usize> {
    let count = integer(word).filter(|count| *count > 0)?;
    Some(usize::try_from(count).unwrap_or(usize::MAX))
}
