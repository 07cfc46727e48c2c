//! ```text
//! LOCK.LOG [count]
//! ```

use super::spec::{Arg, Flag, KeyWords, Spec, NONDETERMINISTIC};
use super::top::count_of;
use super::{Args, Error};

/// The description of LOCK.LOG for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.log",
    summary: c"Returns the last holds that a command or eviction has ended, the newest first.",
    complexity: c"O(N) for N entries in the reply.",
    since: c"0.3.0",
    // Admin: it shows the names of keys, tokens, users and addresses.
    flags: &[Flag::ReadOnly, Flag::Admin],
    keys: KeyWords::None,
    args: &[Arg::integer(c"count").optional()],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// How many entries are told where the request says no number.
const DEFAULT: usize = 10;

/// Reads how many entries are wanted.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<usize, Error> {
    let Some(word) = args.optional() else {
        return Ok(DEFAULT);
    };
    args.finish()?;
    count_of(word).ok_or(Error::EntryCount)
}
