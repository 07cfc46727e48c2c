//! ```text
//! LOCK.RELEASE key token [ATLEAST milliseconds]
//! ```

use super::args::ms;
use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec};
use super::{Args, Error};
use crate::lock::Token;

/// The description of LOCK.RELEASE for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.release",
    summary: c"Ends a token's hold of a lock.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds, and O(log(M)) of M waiters for each that is let in.",
    since: c"0.3.0",
    // Not DenyOom: releasing must always work.
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyWords::One(KeyUse::Deletes),
    args: &[
        Arg::KEY,
        Arg::text(c"token"),
        Arg::integer(c"milliseconds").after(c"ATLEAST").optional(),
    ],
    tips: None,
    history: &[],
};

/// Reads the arguments after the key: the token whose hold is to end, and how long the hold is to
/// last at least, from its beginning, in milliseconds.
pub fn parse<'a>(
    mut args: Args<impl Iterator<Item = &'a [u8]>>,
) -> Result<(Token<'a>, u64), Error> {
    let token = args.owner()?;
    let mut at_least_ms = None;
    while let Some(option) = args.optional() {
        if !option.eq_ignore_ascii_case(b"ATLEAST") {
            return Err(Error::UnknownReleaseOption);
        }
        if at_least_ms.is_some() {
            return Err(Error::RepeatedOption);
        }
        let value = args.optional().ok_or(Error::AtLeast)?;
        at_least_ms = Some(ms(value, Error::AtLeast)?);
    }
    args.finish()?;
    Ok((token, at_least_ms.unwrap_or(0)))
}
