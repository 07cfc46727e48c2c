//! ```text
//! LOCK.RENEW key token ttl
//! ```
//! Sets this token's deadline to now + ttl, later or earlier than it was. The reply is 1, or 0 when the token holds nothing: a
//! lost lock is never taken again.

use super::{Args, Decision, Error, Reply};
use crate::lock::{Lock, Now, Token, Ttl};

/// A parsed request for a new deadline.
#[derive(Debug)]
pub struct Renew<'a> {
    token: Token<'a>,
    ttl: Ttl,
}

impl<'a> Renew<'a> {
    /// Reads the arguments that follow the key.
    ///
    /// # Errors
    /// When they do not fit the grammar.
    pub fn parse(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Self, Error> {
        let token = args.token()?;
        let ttl = args.ttl()?;
        args.finish()?;
        Ok(Self { token, ttl })
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
