//! ```text
//! LOCK.RENEW key token ttl
//! ```

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec};
use super::{Args, Error};
use crate::lock::{Token, Ttl};

/// The description of LOCK.RENEW for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.renew",
    summary: c"Sets the deadline of a token's hold to now + ttl.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    since: c"0.3.0",
    // Not DenyOom: a holder must be able to keep its lock while memory is short.
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyWords::One(KeyUse::Updates),
    args: &[Arg::KEY, Arg::text(c"token"), Arg::integer(c"ttl")],
    tips: None,
    history: &[],
};

/// Reads the arguments after the key: who asks, and the length of the lease that begins.
pub fn parse<'a>(
    mut args: Args<impl Iterator<Item = &'a [u8]>>,
) -> Result<(Token<'a>, Ttl), Error> {
    let token = args.owner()?;
    let ttl = args.ttl()?;
    args.finish()?;
    Ok((token, ttl))
}
