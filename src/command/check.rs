//! ```text
//! LOCK.CHECK key token
//! ```
//! Tells whether this token holds the lock now. The reply is the fence of its hold, or null. The
//! command changes nothing. In a script that begins with it, the whole script is guarded.

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error, Reply};
use crate::lock::{Lock, Now, Token};

/// The description of LOCK.CHECK for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.check",
    summary: c"Returns the fence of a token's hold, or null if it holds nothing.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    since: c"0.2.0",
    flags: &[Flag::ReadOnly, Flag::Fast],
    acl_categories: c"read fast",
    keys: KeyWords::One(KeyUse::Reads),
    args: &[Arg::KEY, Arg::text(c"token")],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// A parsed question.
#[derive(Debug)]
pub struct Check<'a> {
    token: Token<'a>,
}

impl<'a> Check<'a> {
    /// Reads the arguments after the key.
    ///
    /// # Errors
    /// If they do not fit the grammar.
    pub fn parse(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Self, Error> {
        let token = args.owner()?;
        args.finish()?;
        Ok(Self { token })
    }

    /// Who asks.
    pub const fn token(&self) -> Token<'a> {
        self.token
    }

    /// The reply at `now`.
    pub fn reply(&self, lock: Option<&Lock>, now: Now) -> Reply<'static> {
        let hold = lock.and_then(|lock| lock.hold_of(self.token, now));
        hold.map_or(Reply::Null, |(_, hold)| Reply::Fence(hold.fence))
    }
}
