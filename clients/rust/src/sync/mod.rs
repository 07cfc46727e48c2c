//! Locks over blocking connections.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::{Options, sync::LockClient};
//!
//! # fn main() -> redis_lock_client::Result<()> {
//! let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
//!
//! let lock = locks.lock("stock:7").with_ttl(Duration::from_secs(10));
//! if let Some(guard) = lock.lock_timeout(Duration::from_secs(5))? {
//!     let keep_alive = guard.keep_alive();
//!     while work_is_left() && !guard.is_lost() {
//!         work(guard.fence());
//!     }
//!     drop(keep_alive);
//!     guard.unlock()?;
//! }
//!
//! let page = locks.rwlock("page:7");
//! let reader = page.read()?; // any number at once; a waiting writer goes first
//! drop(reader); // releases, too, but cannot say if the hold was lost
//! # Ok(())
//! # }
//! # fn work_is_left() -> bool { false }
//! # fn work(_: u64) {}
//! ```
//!
//! # Waiting
//!
//! Each thread that waits has a connection of its own, which blocks in the server for one slice at
//! a time. The token, and with it the place in the queue, is the same for all slices and
//! connections. A client that gives up releases its place. Renewals and releases never wait for a
//! connection that waits.

mod connect;
mod driver;
#[cfg(feature = "sentinel")]
mod sentinel;

use std::fmt;
use std::time::Duration;

use redis::{FromRedisValue, IntoConnectionInfo, ToSingleRedisArg};

use crate::attempt::Patience;
use crate::driver::Peer;
use crate::error::{Error, Result};
use crate::info::unnamed;
use crate::options::Options;

pub use connect::{Connect, Connection};
pub use driver::Blocking;
use driver::{Ask, Pool, now};

/// Makes locks. One client serves all threads of a program, and a clone is the same client.
pub type LockClient = crate::locks::LockClient<Blocking>;
/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
pub type Lock = crate::locks::Lock<Blocking>;
/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
pub type RwLock = crate::locks::RwLock<Blocking>;
/// A lock that a number of guards hold at a time.
pub type Semaphore = crate::locks::Semaphore<Blocking>;
/// Several locks as one.
pub type MultiLock = crate::locks::MultiLock<Blocking>;
/// A value that one of all callers makes.
pub type Once = crate::once::Once<Blocking>;
/// A hold on a lock. Dropping it releases the lock.
pub type Guard = crate::guard::Guard<Blocking>;
/// Renews a hold in a thread of its own until it is dropped. Its drop releases nothing.
pub type KeepAlive = crate::keeper::KeepAlive<Blocking>;

impl LockClient {
    /// Makes a client of the server at an address. It connects when the first command is sent.
    ///
    /// It does not send CLIENT SETINFO. A `redis::Client` that [`LockClient::new`] gets may do so.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Ok(Self::new(redis::Client::open(unnamed(address)?)?, options))
    }

    /// Makes a client of a `redis::Client`, or of anything else that makes connections.
    pub fn new(connect: impl Connect + 'static, options: Options) -> Self {
        let pool = Pool::new(connect);
        let ask: Ask = Box::new(move |commands, time| now(pool.send(commands, time)));
        Self::with(ask, options)
    }

    /// Makes a client of the primary that sentinels name. It follows a failover with its tokens.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Options, Sentinel, sync::LockClient};
    /// # fn main() -> redis_lock_client::Result<()> {
    /// let sentinel = Sentinel::new(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "locks")?;
    /// let locks = LockClient::sentinel(sentinel, Options::default());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "sentinel")))]
    pub fn sentinel(sentinel: crate::Sentinel, options: Options) -> Self {
        Self::new(sentinel, options.with_failover())
    }

    /// Makes a client of the cluster that has these nodes, and others. Each lock is on the node of
    /// its key. A waiter follows its slot and a failover with its token.
    ///
    /// Credentials and TLS are those of the first address, for all nodes.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Options, sync::LockClient};
    /// # fn main() -> redis_lock_client::Result<()> {
    /// let nodes = ["redis://127.0.0.1:7000", "redis://127.0.0.1:7001"];
    /// let locks = LockClient::cluster(nodes, Options::default())?;
    /// // The keys of several locks need one slot, so they share what is in braces.
    /// let both = locks.multi_lock(["{stock}:7", "{stock}:8"]).lock()?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    pub fn cluster<A: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = A>,
        options: Options,
    ) -> Result<Self> {
        let cluster = crate::cluster::Cluster::<Pool>::new(nodes, |_, _, _| {})?;
        let ask: Ask = Box::new(move |commands, time| {
            let (answer, _) = now(cluster.send(commands, time))?;
            Ok(answer)
        });
        Ok(Self::with(ask, options.with_failover()))
    }

    /// Runs a job unless somebody runs it now, or ran it less than `at_least` ago. `None` if it did
    /// not run here. It does not wait.
    ///
    /// The lock is held for `at_most`, and not renewed: a job that takes longer may run twice. The
    /// lock is released after the job, also if that panics. But it is held until `at_least` has
    /// passed since the grant, by the server's clock.
    pub fn run_once<T>(
        &self,
        key: impl AsRef<[u8]>,
        at_most: Duration,
        at_least: Duration,
        job: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>> {
        let job = async |guard: &Guard| job(guard);
        now(self.run(key.as_ref(), (at_most, at_least), job))
    }
}

impl Once {
    /// Returns the value, made by `make` or by another caller.
    ///
    /// An error of `make` goes to its own caller. The errors of this crate become one of the same type.
    /// [`Error::InProgress`] if there is no value in time,
    /// [`Error::ModuleMissing`] on a server without LOCK.ONCE.
    /// `make` gets the guard of the lock: write with its fence, and stop when it is lost.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use redis_lock_client::{Options, sync::LockClient};
    /// # use std::time::Duration;
    /// # fn render(_: u32) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
    /// let page = locks.once("page:7").with_keep(Duration::from_secs(60));
    /// let html: String = page.get_or_make(|_| Ok::<_, Box<dyn std::error::Error>>(render(7)?))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_or_make<T, E>(
        &self,
        make: impl FnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: ToSingleRedisArg + FromRedisValue,
        E: From<Error> + fmt::Debug,
    {
        now(self.value(async |guard| make(guard)))
    }
}

impl KeepAlive {
    /// Waits until the hold is over or released, `timeout` at most. True if it is over or released.
    pub fn wait_lost(&self, timeout: Duration) -> bool {
        now(self.lease.lost::<Blocking>(Patience::of(timeout)))
    }
}
