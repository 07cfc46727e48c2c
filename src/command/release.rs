//! ```text
//! LOCK.RELEASE key token
//! ```
//! Ends this token's hold, shared or exclusive. The reply is 1, or 0 if the token holds nothing. In
//! that case it gives up the token's place in the queue, if there is one.

use super::spec::{Arg, Change, Flag, KeyUse, Keys, Spec};
use super::{Args, Decision, Error, Reply};
use crate::lock::{Hold, Lock, Now, Token};

/// The description of LOCK.RELEASE for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.release",
    summary: c"Ends a token's hold of a lock.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds, and O(log(M)) of M waiters for each that is let in.",
    since: c"0.1.0",
    // Not DenyOom: releasing must always work.
    flags: &[Flag::Write, Flag::Fast],
    acl_categories: c"write fast",
    keys: Keys::One(KeyUse::Deletes),
    args: &[Arg::KEY, Arg::text(c"token")],
    tips: None,
    history: &[Change {
        since: c"0.2.0",
        what: c"A token that holds nothing gives up its place in the queue.",
    }],
};

/// A parsed request to end a hold.
#[derive(Debug)]
pub struct Release<'a> {
    token: Token<'a>,
}

impl<'a> Release<'a> {
    /// Reads the arguments after the key.
    ///
    /// # Errors
    /// If they do not fit the grammar.
    pub fn parse(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Self, Error> {
        let token = args.token()?;
        args.finish()?;
        Ok(Self { token })
    }

    /// The token whose hold is to end.
    pub const fn token(&self) -> Token<'a> {
        self.token
    }

    /// Decides the request. The second value is the hold that ends, if one does.
    pub fn decide(&self, lock: Option<&Lock>, now: Now) -> (Decision<'a>, Option<Hold>) {
        match lock.and_then(|lock| lock.release(self.token, now)) {
            Some((effect, hold)) => {
                let change = Decision::Change {
                    effect,
                    reply: Reply::Done(true),
                    had_it: true,
                };
                (change, Some(hold))
            }
            None => (Decision::Same(Reply::Done(false)), None),
        }
    }
}
