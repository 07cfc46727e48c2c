//! ```text
//! LOCK.RENEW key token ttl
//! ```
//! Sets this token's deadline to now + ttl, later or earlier than it was. The reply is 1, or 0 if
//! the token holds nothing: the command never takes a lost lock again.

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec};
use super::{Args, Decision, Error, Reply};
use crate::lock::{Lock, Now, Token, Ttl};

/// The description of LOCK.RENEW for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.renew",
    summary: c"Sets the deadline of a token's hold to now + ttl.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    since: c"0.1.0",
    // Not DenyOom: a holder must be able to keep its lock while memory is short.
    flags: &[Flag::Write, Flag::Fast],
    acl_categories: c"write fast",
    keys: KeyWords::One(KeyUse::Updates),
    args: &[Arg::KEY, Arg::text(c"token"), Arg::integer(c"ttl")],
    tips: None,
    history: &[],
};

/// A parsed request for a new deadline.
#[derive(Debug)]
pub struct Renew<'a> {
    token: Token<'a>,
    ttl: Ttl,
}

impl<'a> Renew<'a> {
    /// Reads the arguments after the key.
    ///
    /// # Errors
    /// If they do not fit the grammar.
    pub fn parse(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Self, Error> {
        let token = args.owner()?;
        let ttl = args.ttl()?;
        args.finish()?;
        Ok(Self { token, ttl })
    }

    /// Who asks.
    pub const fn token(&self) -> Token<'a> {
        self.token
    }

    /// The length of the lease that begins.
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Decides the request.
    pub fn decide(&self, lock: Option<&Lock>, now: Now) -> Decision<'a> {
        match lock.and_then(|lock| lock.renew(self.token, self.ttl, now)) {
            Some(effect) => Decision::Change {
                effect,
                reply: Reply::Done(true),
                had_it: true,
            },
            None => Decision::Same(Reply::Done(false)),
        }
    }
}
