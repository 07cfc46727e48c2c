//! ```text
//! LOCK.RELEASE key token
//! ```
//! Ends this token's hold, shared or exclusive. The reply is 1, or 0 when the token holds nothing.

use super::{Args, Decision, Error, Reply};
use crate::lock::{Hold, Lock, Now, Token};

/// A parsed request to end a hold.
#[derive(Debug)]
pub struct Release<'a> {
    token: Token<'a>,
}

impl<'a> Release<'a> {
    /// Reads the arguments that follow the key.
    ///
    /// # Errors
    /// When they do not fit the grammar.
    pub fn parse(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Self, Error> {
        let token = args.token()?;
        args.finish()?;
        Ok(Self { token })
    }

    /// Decides the request; with it comes the hold that ends, if one does.
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
