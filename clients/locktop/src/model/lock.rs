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
