//! A lock, as LOCK.TOP and LOCK.INFO describe it.

/// A lock of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) db: u32,
    pub(crate) key: Vec<u8>,
}

/// A lock in the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lock {
    pub(crate) place: Place,
    pub(crate) mode: String,
    pub(crate) holders: u64,
    pub(crate) waiters: u64,
    /// How long the first of its queue has waited.
    pub(crate) waited_ms: u64,
    /// None if the lock is free.
    pub(crate) oldest: Option<Oldest>,
}

/// The oldest holder of a lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Oldest {
    pub(crate) token: Vec<u8>,
    pub(crate) held_ms: u64,
    /// Until the lock is free, if nobody renews. None if the user may not ask.
    pub(crate) ttl_ms: Option<u64>,
    /// For how long this program has seen that nobody renews.
    pub(crate) unrenewed_ms: u64,
}

/// Two looks at one deadline differ by the time that the answers take.
const JITTER_MS: u64 = 250;

impl Oldest {
    /// Whether more than half of the lease is over, and its holder has not renewed it. One that
    /// renews does so much earlier.
    pub(crate) fn is_neglected(&self) -> bool {
        self.ttl_ms.is_some_and(|ttl| self.unrenewed_ms > ttl)
    }

    /// Counts on from `before`, what it was `passed_ms` ago.
    pub(crate) fn follow(&mut self, before: &Self, passed_ms: u64) {
        let end_moves = match (self.ttl_ms, before.ttl_ms) {
            (Some(now), Some(then)) => {
                now.saturating_add(passed_ms) > then.saturating_add(JITTER_MS)
            }
            _ => true,
        };
        if self.token == before.token && !end_moves {
            self.unrenewed_ms = before.unrenewed_ms.saturating_add(passed_ms);
        }
    }
}

/// Everything about one lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Detail {
    pub(crate) mode: String,
    pub(crate) limit: Option<u64>,
    /// The first ones; the module says how many there are.
    pub(crate) holders: Vec<Holder>,
    pub(crate) holder_count: u64,
    /// The same.
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) waiter_count: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Holder {
    pub(crate) token: Vec<u8>,
    pub(crate) fence: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) since_ms: u64,
    pub(crate) held_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Waiter {
    pub(crate) token: Vec<u8>,
    pub(crate) mode: String,
    pub(crate) limit: Option<u64>,
    pub(crate) waited_ms: u64,
    pub(crate) listener: Listener,
    /// The key of the result that answers it, too: it is of LOCK.ONCE.
    pub(crate) result: Option<Vec<u8>>,
}

/// How a waiter will hear of its grant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Listener {
    Client(u64),
    Channel(Vec<u8>),
    /// The place is absent.
    #[default]
    None,
    /// The module is too old to say.
    Unknown,
}

impl Listener {
    /// A module of 0.1 names no listeners, although each waiter is a client that blocks.
    pub(crate) fn of_old_module(self) -> Self {
        match self {
            Self::None => Self::Unknown,
            named => named,
        }
    }
}

impl Detail {
    pub(crate) fn oldest(&self) -> Option<&Holder> {
        self.holders.iter().min_by_key(|holder| holder.since_ms)
    }

    /// The line of the table.
    pub(crate) fn into_lock(self, place: Place) -> Lock {
        let oldest = self.oldest().map(|holder| Oldest {
            token: holder.token.clone(),
            held_ms: holder.held_ms,
            ttl_ms: self.holders.iter().map(|holder| holder.ttl_ms).max(),
            unrenewed_ms: 0,
        });
        Lock {
            place,
            mode: self.mode,
            holders: self.holder_count,
            waiters: self.waiter_count,
            waited_ms: self
                .waiters
                .iter()
                .map(|waiter| waiter.waited_ms)
                .max()
                .unwrap_or_default(),
            oldest,
        }
    }
}
