//! ```text
//! LOCK.TOP [count]
//! ```
//! The locks of the selected database that others have waited for the longest, 10 unless told. The reply
//! is an array of maps of `key`, `mode`, `holders`, `waiters`, `waited`, `token` and `held`. `holders` and
//! `waiters` are numbers. `waited` is how long the first waiter has waited. `token` and `held` are of the
//! oldest holder, null and 0 if the lock is free. Times are in milliseconds.

use super::args::integer;
use super::spec::{Arg, Flag, Keys, Spec, NONDETERMINISTIC};
use super::{Args, Error};

/// The description of LOCK.TOP for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.top",
    summary: c"Returns the most waited-for locks of the selected database.",
    complexity: c"O(K*log(K)+N*log(H)) for K keys that are waited for, N locks in the reply and H holds of each.",
    since: c"0.2.0",
    flags: &[Flag::ReadOnly, Flag::Admin],
    // It shows the names of all keys.
    acl_categories: c"read admin dangerous slow",
    keys: Keys::None,
    args: &[Arg::integer(c"count").optional()],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// How many locks are told where the request says no number.
const DEFAULT: usize = 10;

/// Reads how many locks are wanted.
///
/// # Errors
/// If that is no integer from 1.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<usize, Error> {
    let Some(count) = args.optional() else {
        return Ok(DEFAULT);
    };
    args.finish()?;
    let count = integer(count).filter(|count| *count > 0);
    let count = count.ok_or(Error::Count)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}
