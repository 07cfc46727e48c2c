//! ```text
//! LOCK.INFO key
//! ```
//! Tells who holds the lock and who waits for it. The reply is null if the lock is free and nobody
//! waits. Otherwise it is a map of `mode`, `holders` and `waiters`, and of `limit` if a hold has one.
//! A holder is a map of `token`, `fence`, `ttl` and `since`; holders are in the order of their
//! grants. A waiter is a map of `token`, `mode`, `limit` if it asks for one, `waited`, and `client`
//! or `channel`; waiters are in queue order. A place at which nobody listens has neither of the last
//! two.
//! The command changes nothing, so a replica answers it too.

use std::rc::Rc;

use super::spec::{Arg, Change, Flag, KeyUse, Keys, Spec, NONDETERMINISTIC};
use super::{Args, Error};
use crate::lock::{Deadline, Fence, Lock, Mode, Now, Occupancy, TokenBuf, TokenText};

/// The description of LOCK.INFO for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.info",
    summary: c"Returns who holds a lock and who waits for it.",
    complexity: c"O(N*log(N)+M) for N holds and M waiters.",
    since: c"0.1.0",
    flags: &[Flag::ReadOnly],
    acl_categories: c"read slow",
    keys: Keys::One(KeyUse::Reads),
    args: &[Arg::KEY],
    tips: NONDETERMINISTIC,
    history: &[Change {
        since: c"0.2.0",
        what: c"Waiters have the field client or channel, or neither; the mode may be free or counted; added limit.",
    }],
};

/// Reads the arguments after the key: there are none.
///
/// # Errors
/// If there are some.
pub fn parse<'a>(args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<(), Error> {
    args.finish()
}

/// The reply for a lock.
#[derive(Debug)]
pub struct Info<'a> {
    /// The mode of its holds: counted, with the smallest limit, if one of them has a limit. `None` between the end of the last hold
    /// and the next grant.
    pub mode: Option<Mode>,
    /// The live holds, in the order of their grants.
    pub holders: Vec<Holder<'a>>,
    /// In the order of the queue.
    pub waiters: Vec<Waiter>,
}

/// The reply for a request that waits.
#[derive(Debug)]
pub struct Waiter {
    /// The token that waits.
    pub token: TokenBuf,
    /// The mode that it asks for.
    pub mode: Mode,
    /// How long ago its place was taken, in milliseconds.
    pub waited_ms: u64,
    /// Its listener; `None` of a place at which nobody listens.
    pub listener: Option<Listener>,
}

/// The reply for a listener.
#[derive(Debug)]
pub enum Listener {
    /// The id of a blocked client, as in CLIENT LIST.
    Client(u64),
    /// The name of a channel.
    Channel(Rc<[u8]>),
}

/// The reply for a hold.
#[derive(Debug)]
pub struct Holder<'a> {
    /// The token that holds.
    pub token: TokenText<'a>,
    /// Its fence.
    pub fence: Fence,
    /// The time until its deadline, in milliseconds.
    pub ttl_ms: u64,
    /// The time of its first grant, in milliseconds since the Unix epoch.
    pub since_ms: u64,
}

impl<'a> Info<'a> {
    /// Looks at a lock whose key ends at `key_deadline`. An `EXPIRE` may have set it before the
    /// deadlines of the holds. `None` if the lock is free and nobody waits.
    pub fn of(
        lock: Option<&'a Lock>,
        key_deadline: Option<Deadline>,
        waiters: Vec<Waiter>,
        now: Now,
    ) -> Option<Self> {
        let mut occupancy = Occupancy::NONE;
        let holders: Vec<_> = lock
            .map_or_else(Vec::new, Lock::holds)
            .into_iter()
            .map(|(token, mode, hold)| {
                let deadline = key_deadline.map_or(hold.deadline, |key| key.min(hold.deadline));
                (token, mode, hold, deadline)
            })
            .filter(|(.., deadline)| !deadline.is_over(now.ms()))
            .map(|(token, mode, hold, deadline)| {
                occupancy.add(mode);
                Holder {
                    token,
                    fence: hold.fence,
                    ttl_ms: deadline.remaining_ms(now.ms()),
                    since_ms: hold.since_ms,
                }
            })
            .collect();
        if holders.is_empty() && waiters.is_empty() {
            return None;
        }
        Some(Self {
            mode: occupancy.mode(),
            holders,
            waiters,
        })
    }
}
