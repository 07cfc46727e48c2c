//! ```text
//! LOCK.INFO key
//! ```
//! Who holds the lock and who waits for it. The reply is null when it is free, else a map of `mode`, `holders` (each a map of `token`, `fence`, `ttl`
//! and `since`, in grant order) and `waiters` (each a map of `token`, `mode` and `waited`, in queue order). It changes nothing, so a replica answers it too.

use super::{Args, Error};
use crate::lock::{Deadline, Fence, Lock, Mode, Now, TokenBuf, TokenText};

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
    /// Of all its holds; `None` in the moment between the end of the last hold and the next grant.
    pub mode: Option<Mode>,
    /// Those that live, in the order of their grants.
    pub holders: Vec<Holder<'a>>,
    /// In the order in which they stand.
    pub waiters: Vec<Waiter>,
}

/// What is said of a request that waits.
#[derive(Debug)]
pub struct Waiter {
    /// For whom.
    pub token: TokenBuf,
    /// What is asked for.
    pub mode: Mode,
    /// For how many milliseconds it has waited.
    pub waited_ms: u64,
}

/// What is said of a hold.
#[derive(Debug)]
pub struct Holder<'a> {
    /// Whose.
    pub token: TokenText<'a>,
    /// Its fence.
    pub fence: Fence,
    /// Milliseconds that are left of it.
    pub ttl_ms: u64,
    /// When it was granted first, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

impl<'a> Info<'a> {
    /// Looks at a lock whose key ends at `key_deadline`, which an `EXPIRE` may have brought before the holds' own; `None` when
    /// it is free and nobody waits.
    pub fn of(
        lock: Option<&'a Lock>,
        key_deadline: Option<Deadline>,
        waiters: Vec<Waiter>,
        now: Now,
    ) -> Option<Self> {
        let holders: Vec<_> = lock
            .map_or_else(Vec::new, Lock::holders)
            .into_iter()
            .map(|(token, hold)| {
                let deadline = key_deadline.map_or(hold.deadline, |key| key.min(hold.deadline));
                (token, hold, deadline)
            })
            .filter(|(_, _, deadline)| !deadline.is_over(now.ms()))
            .map(|(token, hold, deadline)| Holder {
                token,
                fence: hold.fence,
                ttl_ms: deadline.remaining_ms(now.ms()),
                since_ms: hold.since_ms,
            })
            .collect();
        if holders.is_empty() && waiters.is_empty() {
            return None;
        }
        Some(Self {
            mode: lock.filter(|_| !holders.is_empty()).map(Lock::mode),
            holders,
            waiters,
        })
    }
}
