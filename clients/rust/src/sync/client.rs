use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::IntoConnectionInfo;

use super::connect::Connect;
use super::guard::Guard;
use super::inner::Inner;
use crate::Mode;
use crate::attempt::Patience;
use crate::command::Claim;
use crate::common::{Named, Parts, settings};
use crate::error::Result;
use crate::options::Options;
use crate::support::Support;

/// Makes locks. One client serves all threads of a program, and a clone is the same client.
#[derive(Clone)]
pub struct LockClient {
    pub(super) inner: Arc<Inner>,
}

impl LockClient {
    /// Makes a client of the server at an address. It connects when the first command is sent.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Ok(Self::new(redis::Client::open(address)?, options))
    }

    /// Makes a client of a `redis::Client`, or of anything else that makes connections.
    pub fn new(connect: impl Connect + 'static, options: Options) -> Self {
        Self {
            inner: Arc::new(Inner {
                connect: Box::new(connect),
                options,
                support: Support::default(),
                idle: Mutex::default(),
            }),
        }
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
        let topology = crate::cluster::Topology::new(nodes)?;
        let nodes = super::cluster::Nodes::new(topology);
        Ok(Self::new(nodes, options.with_failover()))
    }

    /// An exclusive lock. `key` is its name in the server.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.named(key.as_ref()))
    }

    /// A reader-writer lock. Readers and writers wait in one queue.
    pub fn rwlock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock(self.named(key.as_ref()))
    }

    /// A lock that `permits` guards hold at a time. `key` is its name in the server.
    ///
    /// The number belongs to each acquire. If callers disagree, the smallest counts while its owner
    /// holds a permit.
    pub fn semaphore(&self, key: impl AsRef<[u8]>, permits: u32) -> Semaphore {
        Semaphore(self.named(key.as_ref()), permits)
    }

    /// Several locks as one, taken exclusively. See [`MultiLock::and_shared`] for shares.
    ///
    /// The server refuses a key that is named twice, and in a cluster keys of several slots.
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        MultiLock::new(self, Parts::default().add(keys, Mode::Exclusive))
    }

    /// Runs a job unless somebody runs it now, or ran it less than `at_least` ago. `None` if it did
    /// not run here. It does not wait.
    ///
    /// The lock is held for `at_most`, and not renewed: a job that takes longer may run twice. The
    /// lock is released after the job, also if that panics. But it is held until `at_least` has
    /// passed since the grant, by the server's clock. The server's module must be 0.2 or newer;
    /// otherwise the job does not run.
    pub fn run_once<T>(
        &self,
        key: impl AsRef<[u8]>,
        at_most: Duration,
        at_least: Duration,
        job: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>> {
        let named = Named::once(self, key.as_ref(), at_most, at_least);
        let probe = named.place();
        self.inner.need_at_least(&probe, named.ttl)?;
        let Some(guard) = named.acquire(&Claim::Lock, Patience::None)? else {
            return Ok(None);
        };
        let result = job(&guard);
        if let Err(error) = guard.unlock() {
            log::warn!("the lock of a job was not released by it: {error}");
        }
        Ok(Some(result))
    }

    fn named(&self, key: &[u8]) -> Named<Self> {
        Named::new(self, key, self.inner.options.ttl)
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Named<LockClient> {
    fn acquire(&self, claim: &Claim, patience: Patience) -> Result<Option<Guard>> {
        let place = self.place();
        let inner = &self.client.inner;
        let Some(grant) = inner.acquire(&place, claim, self.ttl, patience)? else {
            return Ok(None);
        };
        let claim = claim.clone();
        Ok(Some(Guard::new(inner, place, claim, grant, self.ttl)))
    }

    /// Waits as long as it takes.
    fn acquire_forever(&self, claim: &Claim) -> Result<Guard> {
        loop {
            if let Some(guard) = self.acquire(claim, Patience::Forever)? {
                return Ok(guard);
            }
        }
    }
}

/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct Lock(Named<LockClient>);

impl Lock {
    settings!("gives up");

    /// Takes the lock. Waits as long as it takes.
    pub fn lock(&self) -> Result<Guard> {
        self.0.acquire_forever(&Claim::Lock)
    }

    /// Takes the lock if nobody holds it and nobody waits for it.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        self.0.acquire(&Claim::Lock, Patience::None)
    }

    /// Takes the lock. `None` if it is unavailable for all of `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0.acquire(&Claim::Lock, Patience::of(timeout))
    }
}

/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct RwLock(Named<LockClient>);

impl RwLock {
    settings!("gives up");

    /// Takes a share. Waits as long as it takes. A writer that came first goes first.
    pub fn read(&self) -> Result<Guard> {
        self.0.acquire_forever(&Claim::RwLock(Mode::Shared))
    }

    /// Takes a share if no writer holds the lock and nobody waits for it.
    pub fn try_read(&self) -> Result<Option<Guard>> {
        self.0.acquire(&Claim::RwLock(Mode::Shared), Patience::None)
    }

    /// Takes a share. `None` if there is none to be had for all of `timeout`.
    pub fn read_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0
            .acquire(&Claim::RwLock(Mode::Shared), Patience::of(timeout))
    }

    /// Takes the lock alone. Waits as long as it takes.
    pub fn write(&self) -> Result<Guard> {
        self.0.acquire_forever(&Claim::RwLock(Mode::Exclusive))
    }

    /// Takes the lock alone if nobody holds it and nobody waits for it.
    pub fn try_write(&self) -> Result<Option<Guard>> {
        self.0
            .acquire(&Claim::RwLock(Mode::Exclusive), Patience::None)
    }

    /// Takes the lock alone. `None` if it is unavailable for all of `timeout`.
    pub fn write_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0
            .acquire(&Claim::RwLock(Mode::Exclusive), Patience::of(timeout))
    }
}

/// A lock that a number of guards hold at a time. What is held is the [`Guard`], with a token, a ttl
/// and a fence of its own.
#[derive(Clone, Debug)]
pub struct Semaphore(Named<LockClient>, u32);

impl Semaphore {
    settings!("gives up");

    /// Takes a permit. Waits as long as it takes.
    pub fn acquire(&self) -> Result<Guard> {
        self.0.acquire_forever(&Claim::Permit(self.1))
    }

    /// Takes a permit if there is one and nobody waits for it.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        self.0.acquire(&Claim::Permit(self.1), Patience::None)
    }

    /// Takes a permit. `None` if there is none to be had for all of `timeout`.
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0
            .acquire(&Claim::Permit(self.1), Patience::of(timeout))
    }
}

/// Several locks as one: the server grants all of them in one step, or none. What is held is one
/// [`Guard`], with one fence. If one of the locks is lost, all are.
///
/// A waiter holds nothing, and has a place in the queue of each key. So requests that cross cannot
/// block one another for ever.
#[derive(Clone, Debug)]
pub struct MultiLock(Named<LockClient>, Parts);

impl MultiLock {
    fn new(client: &LockClient, parts: Parts) -> Self {
        let named = Named::all(client, &parts.keys, client.inner.options.ttl);
        Self(named, parts)
    }

    settings!("gives up");

    /// The same locks, and shares of these.
    pub fn and_shared<K: AsRef<[u8]>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        let parts = self.1.add(keys, Mode::Shared);
        let named = Named::all(&self.0.client, &parts.keys, self.0.ttl);
        Self(
            Named {
                token: self.0.token,
                ..named
            },
            parts,
        )
    }

    /// Takes all. Waits as long as it takes.
    pub fn lock(&self) -> Result<Guard> {
        self.0.acquire_forever(&self.1.claim())
    }

    /// Takes all if none is held and nobody waits for any.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        self.0.acquire(&self.1.claim(), Patience::None)
    }

    /// Takes all. `None` if they are not available together for all of `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.0.acquire(&self.1.claim(), Patience::of(timeout))
    }
}
