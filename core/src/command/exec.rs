//! ```text
//! LOCK.EXEC key token command [arg ...]
//! ```

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error};
use crate::lock::Token;

/// The description of LOCK.EXEC for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.exec",
    summary: c"Runs a command only if a token holds a lock now.",
    complexity:
        c"As the command, plus O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    since: c"0.3.0",
    // A script must not call it, and it must not call itself.
    flags: &[Flag::Write, Flag::DenyScript],
    keys: KeyWords::ByCallback {
        first: KeyUse::Reads,
    },
    args: &[
        Arg::KEY,
        Arg::text(c"token"),
        Arg::text(c"command"),
        Arg::text(c"arg").optional().multiple(),
    ],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// The word that is the command to run.
pub const COMMAND_AT: usize = 3;

/// Reads the token and the command to run; what follows belongs to that command.
pub fn parse<'a>(
    mut args: Args<impl Iterator<Item = &'a [u8]>>,
) -> Result<(Token<'a>, &'a [u8]), Error> {
    let token = args.owner()?;
    let command = args.required()?;
    if command.eq_ignore_ascii_case(b"SELECT") {
        return Err(Error::NoSelect);
    }
    Ok((token, command))
}

/// Whether a command is this one. It is never run by itself.
pub fn is_this(command: &[u8]) -> bool {
    command.eq_ignore_ascii_case(SPEC.name.to_bytes())
}
