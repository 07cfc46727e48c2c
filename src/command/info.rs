//! ```text
//! LOCK.INFO key
//! ```
//! Who holds the lock. The reply is null when it is free, else a map of `mode`, `holders` (each a map of `token`, `fence`, `ttl`
//! and `since`, in grant order) and `waiters`. It changes nothing, so a replica answers it too.

use super::{Args, Error};
use crate::lock::{Deadline, Fence, Lock, Mode, Now, Token};

/// Reads the arguments that follow the key: there are none.
///
/// # Errors
/// When there are some.
pub fn parse<'a>(args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<(), Error> {
    args.finish()
}

/// What is said of a lock.
#[derive(Debug)]
pub struct Info<'a> {
    /// Of all its holds.
    pub mode: Mode,
    /// Those that live, in the order of their grants.
    pub holders: Vec<Holder<'a>>,
}

/// What is said of a hold.
#[derive(Debug)]
pub struct Holder<'a> {
    /// Whose.
    pub token: Token<'a>,
    /// Its fence.
    pub fence: Fence,
    /// Milliseconds that are left of it.
    pub ttl_ms: u64,
    /// When it was granted first, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

impl<'a> Info<'a> {
    /// Looks at a lock whose key ends at `key_deadline`, which an `EXPIRE` may have brought before the holds' own; `None` when
    /// it is free.
    pub fn of(lock: &'a Lock, key_deadline: Option<Deadline>, now: Now) -> Option<Self> {
        let holders: Vec<_> = lock
            .holders()
            .into_iter()
            .map(|(token, hold)| {
                (
                    token,
                    hold,
                    key_deadline.map_or(hold.deadline, |key| key.min(hold.deadline)),
                )
            })
            .filter(|(_, _, deadline)| !deadline.is_over(now.ms()))
            .map(|(token, hold, deadline)| Holder {
                token,
                fence: hold.fence,
                ttl_ms: deadline.remaining_ms(now.ms()),
                since_ms: hold.since_ms,
            })
            .collect();
        (!holders.is_empty()).then_some(Self {
            mode: lock.mode(),
            holders,
        })
    }
}
