//! ```text
//! LOCK.CHECK key token
//! ```

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error};
use crate::lock::Token;

/// The description of LOCK.CHECK for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.check",
    summary: c"Returns the fence of a token's hold, or null if it holds nothing.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    since: c"0.3.0",
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyWords::One(KeyUse::Reads),
    args: &[Arg::KEY, Arg::text(c"token")],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// Reads the arguments after the key: who asks.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Token<'a>, Error> {
    let token = args.owner()?;
    args.finish()?;
    Ok(token)
}
