use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest ttl that the module grants.
const MAX_TTL: Duration = Duration::from_millis(1 << 48);
/// The longest grace that the module accepts.
const MAX_GRACE: Duration = Duration::from_secs(3_600);

/// No client hears of the end of its connection sooner.
const MIN_LINGER: Duration = Duration::from_millis(100);

/// The longest time that an answer may take.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The time for which commands are sent again to one server.
const SHORT: Duration = Duration::from_secs(3);
/// The same where another server takes the place of one that is gone.
pub(crate) const FAILOVER: Duration = Duration::from_secs(30);

/// A hold that ended against the will of its owner, as [`Options::on_lost`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostLock {
    /// The key of the lock, the first one of several.
    pub key: Vec<u8>,
    /// The token of the owner.
    pub token: Vec<u8>,
    /// The fence of the hold.
    pub fence: u64,
}

/// A function of the program's.
pub(crate) struct Callback<T: ?Sized>(pub(crate) Box<dyn Fn(&T) + Send + Sync>);

impl<T: ?Sized> fmt::Debug for Callback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// The settings of a client. The defaults are those of the other languages' adapters.
///
/// ```
/// use redis_lock_client::Options;
/// use std::time::Duration;
///
/// let options = Options::default()
///     .ttl(Duration::from_secs(10))
///     .on_lost(|lost| eprintln!("lost the lock with fence {}", lost.fence));
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) ttl: Duration,
    pub(crate) slice: Duration,
    pub(crate) grace: Duration,
    reconnect: Option<Duration>,
    /// How long a failover of the client's kind of servers may take.
    pub(crate) failover: Duration,
    pub(crate) fallback: bool,
    pub(crate) linger: Option<Duration>,
    pub(crate) max_waiting_connections: usize,
    pub(crate) on_lost: Option<Arc<Callback<LostLock>>>,
    pub(crate) on_fallback: Option<Arc<Callback<str>>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            slice: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            reconnect: None,
            failover: SHORT,
            fallback: false,
            linger: None,
            max_waiting_connections: 10,
            on_lost: None,
            on_fallback: None,
        }
    }
}

impl Options {
    /// The time until a hold ends by itself, 30 s by default. `keep_alive` renews it at a third of
    /// this.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = bounded_ttl(ttl);
        self
    }

    /// The longest wait that one command asks for, 10 s by default. The place in the queue outlives
    /// it.
    ///
    /// A server that is gone without a word is noticed at the end of a slice.
    pub fn slice(mut self, slice: Duration) -> Self {
        self.slice = slice.clamp(Duration::from_millis(1), MAX_TTL);
        self
    }

    /// The time that a place in the queue waits for a client that lost its connection, 5 s by
    /// default.
    ///
    /// It should be longer than [`Options::reconnect`]. A client that dies delays those behind it
    /// by this at most.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace.clamp(Duration::from_millis(1), MAX_GRACE);
        self
    }

    /// The time for which commands are sent again while the server is out of reach.
    ///
    /// 3 s by default. With a Sentinel and in a cluster it is 30 s, because a failover takes a while.
    /// There a wait with a time-out ends at its time-out, but not before 3 s.
    pub fn reconnect(mut self, reconnect: Duration) -> Self {
        self.reconnect = Some(reconnect);
        self
    }

    /// Allows `SET key token NX PX ttl` and Lua scripts on a server that has no redis-lock module. Off
    /// by default.
    ///
    /// It is for servers that load no modules. A client chooses once, by the answer to its first
    /// acquire, and says so once by [`Options::on_fallback`]. There is no fair queue, no fence
    /// ([`fence`](crate::sync::Guard::fence) is 0, never send it to a resource), no readers, no
    /// permits, no several locks, no guarded commands and no least time. An eviction or a failover may
    /// end a hold early. What there is not is [`Error::ModuleMissing`](crate::Error::ModuleMissing).
    pub fn fallback(mut self, fallback: bool) -> Self {
        self.fallback = fallback;
        self
    }

    /// Binds each hold to the connection of its acquire: when that is lost, the hold ends after
    /// `linger` at the latest. Off by default; 100 ms at least.
    ///
    /// A hold counts as lost, and [`Guard::is_lost`](crate::sync::Guard::is_lost) says so, `linger`
    /// after its connection was last known to live. `keep_alive` renews at a third of `linger`, which
    /// proves that the connection lives, or binds the hold to the next one. Without `keep_alive` renew
    /// more often than `linger` yourself.
    ///
    /// A wait ends with its connection, too. So a task that waits asks again after half of
    /// [`Options::grace`].
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = Some(linger.clamp(MIN_LINGER, MAX_TTL));
        self
    }

    /// The number of connections that may wait at a server without NOTIFY, 10 by default. Only
    /// `aio` uses it.
    pub fn max_waiting_connections(mut self, connections: usize) -> Self {
        self.max_waiting_connections = connections.max(1);
        self
    }

    /// Calls `on_lost` for every hold that `keep_alive` sees lost. It runs on the thread that
    /// renews the hold, or on one for blocking calls of the tokio runtime.
    pub fn on_lost(mut self, on_lost: impl Fn(&LostLock) + Send + Sync + 'static) -> Self {
        self.on_lost = Some(Arc::new(Callback(Box::new(on_lost))));
        self
    }

    /// Calls `on_fallback` once for each way of waiting that the server lacks, and once if it lacks
    /// the module. The text also goes to the log.
    pub fn on_fallback(mut self, on_fallback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_fallback = Some(Arc::new(Callback(Box::new(on_fallback))));
        self
    }

    /// How long a request is sent again whose wait or whose hold ends by itself after `left`.
    pub(crate) fn reach(&self, left: Duration) -> Duration {
        self.reconnect.unwrap_or(self.failover.min(SHORT.max(left)))
    }

    /// The time that an answer may take. A renewal that failed must be tried again before the lease
    /// is over.
    pub(crate) fn answer_time(&self, ttl: Duration) -> Duration {
        let third = ttl.div_f64(3.0);
        third.clamp(Duration::from_millis(1), ANSWER_TIME)
    }
}

/// The ttl as the module takes it.
pub(crate) fn bounded_ttl(ttl: Duration) -> Duration {
    ttl.clamp(Duration::from_millis(1), MAX_TTL)
}
