//! What can be held. A method that asks the server returns a result in [`sync`](crate::sync), and a
//! future of it in `aio`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Client, IntoConnectionInfo, Value};
use tracing::Instrument;

use crate::acquire::Patience;
use crate::cluster::Cluster;
use crate::command::{Claim, Place, SHARE, new_token};
use crate::driver::{Driver, Engine, Leftover, Support};
use crate::error::Result;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::{Lease, until};
use crate::options::{FAILOVER, bounded_ttl};
use crate::server::{Servers, Source, unnamed};
use crate::{Mode, Options};

/// What a method that asks the server returns.
pub trait Returns {
    /// The result itself in [`sync`](crate::sync), and a future of it in `aio`.
    type Done<'a, T: 'a>;
}

/// Makes locks. One client serves a whole program, and a clone is the same client.
#[derive(Clone, Debug)]
pub struct LockClient<D: Driver> {
    pub(crate) engine: Arc<Engine<D>>,
}

impl<D: Driver> LockClient<D> {
    fn over(servers: Servers<D>, hub: D::Hub, options: Options) -> Self {
        let engine = Arc::new(Engine {
            servers,
            hub,
            options,
            support: Support::default(),
        });
        Self { engine }
    }

    fn to(source: Source, options: Options) -> Self {
        let hub = D::hub(&options);
        let server = D::peer(source, Some(hub.clone()));
        Self::over(Servers::One(server), hub, options)
    }

    /// Makes a client of the server at an address. It connects when the first command is sent.
    ///
    /// It does not send CLIENT SETINFO. A `redis::Client` that [`LockClient::new`] gets may do so.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Ok(Self::new(Client::open(unnamed(address)?)?, options))
    }

    /// Makes a client with connections of its own to the server of a `redis::Client`.
    pub fn new(client: Client, options: Options) -> Self {
        Self::to(Source::Server(client), options)
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
    pub fn sentinel(sentinel: crate::Sentinel, mut options: Options) -> Self {
        options.failover = FAILOVER;
        Self::to(Source::Sentinel(sentinel), options)
    }

    /// Makes a client of the cluster that has these nodes, and others. Each lock is on the node of
    /// its key. A waiter follows its slot and a failover with its token.
    ///
    /// Credentials and TLS are those of the first address, for all nodes. In `aio` it listens on a
    /// shard channel for each slot that is waited for. Where that is not possible a waiter asks again
    /// every 50 ms.
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
    pub fn cluster<A: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = A>,
        mut options: Options,
    ) -> Result<Self> {
        options.failover = FAILOVER;
        let (nodes, hub) = (nodes.into_iter().map(unnamed), D::hub(&options));
        let cluster = Cluster::new(nodes.collect::<redis::RedisResult<_>>()?, hub.clone())?;
        Ok(Self::over(
            Servers::Cluster(Box::new(cluster)),
            hub,
            options,
        ))
    }

    /// An exclusive lock. `key` is its name in the server.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock<D> {
        self.request([key], Claim::Lock)
    }

    /// A reader-writer lock. Readers and writers wait in one queue.
    pub fn rwlock(&self, key: impl AsRef<[u8]>) -> RwLock<D> {
        self.request([key], Claim::RwLock(Mode::Exclusive))
    }

    /// A lock that `permits` guards hold at a time. `key` is its name in the server.
    ///
    /// The number belongs to each acquire. If callers disagree, the smallest counts while its owner
    /// holds a permit.
    pub fn semaphore(&self, key: impl AsRef<[u8]>, permits: u32) -> Semaphore<D> {
        self.request([key], Claim::Permit(permits))
    }

    /// Several locks as one, taken exclusively. See [`MultiLock::and_shared`] for shares.
    ///
    /// The server refuses a key that is named twice, and in a cluster keys of several slots.
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock<D> {
        let mut all = self.request(keys, Claim::Lock);
        all.claim = Claim::All(vec![Mode::Exclusive; all.place.keys.len()]);
        all
    }

    /// Runs a job unless somebody runs it now, or ran it less than `at_least` ago.
    pub(crate) async fn run<T>(
        &self,
        key: &[u8],
        (at_most, at_least): (Duration, Duration),
        job: impl AsyncFnOnce(&Guard<D>) -> T,
    ) -> Result<Option<T>> {
        let mut lock = self.lock(key).with_ttl(at_most);
        lock.place.at_least = (!at_least.is_zero()).then_some(at_least.min(lock.ttl));
        let Some(guard) = lock.take(&lock.claim, Duration::ZERO).await? else {
            return Ok(None);
        };
        let result = job(&guard).await;
        if let Err(error) = guard.hold.unlock().await {
            tracing::warn!(%error, "the lock of a job was not released by it");
        }
        Ok(Some(result))
    }

    pub(crate) fn request<K>(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        claim: Claim,
    ) -> Request<D, K> {
        Request {
            engine: self.engine.clone(),
            place: Place {
                keys: owned(keys),
                ..Place::default()
            },
            claim,
            token: None,
            ttl: self.engine.options.ttl,
            kind: PhantomData,
        }
    }
}

/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
pub type Lock<D> = Request<D, kinds::One>;

/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
pub type RwLock<D> = Request<D, kinds::ReadersWriters>;

/// A lock that a number of guards hold at a time. What is held is the [`Guard`], with a token, a ttl
/// and a fence of its own.
pub type Semaphore<D> = Request<D, kinds::Permits>;

/// Several locks as one: the server grants all of them in one step, or none. What is held is one
/// [`Guard`], with one fence. If one of the locks is lost, all are.
///
/// A waiter holds nothing, and has a place in the queue of each key. So requests that cross cannot
/// block one another for ever.
pub type MultiLock<D> = Request<D, kinds::Several>;

/// What a [`Request`] is for.
pub mod kinds {
    /// One lock, taken alone.
    #[derive(Clone, Debug)]
    pub enum One {}
    /// Several locks as one.
    #[derive(Clone, Debug)]
    pub enum Several {}
    /// One lock, taken alone or shared.
    #[derive(Clone, Debug)]
    pub enum ReadersWriters {}
    /// One of so many permits.
    #[derive(Clone, Debug)]
    pub enum Permits {}

    /// What is taken in one way only.
    pub trait Locked: Sync {}
    impl Locked for One {}
    impl Locked for Several {}
}

/// What is asked for, and how: a [`Lock`], a [`RwLock`], a [`Semaphore`] or a [`MultiLock`].
#[derive(Clone, Debug)]
pub struct Request<D: Driver, K> {
    pub(crate) engine: Arc<Engine<D>>,
    /// Without a token.
    pub(crate) place: Place,
    claim: Claim,
    token: Option<Vec<u8>>,
    pub(crate) ttl: Duration,
    kind: PhantomData<K>,
}

impl<D: Driver, K: kinds::Locked> Request<D, K> {
    /// Takes the lock, or all of several. Waits as long as it takes.
    pub fn lock(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.take_forever(&self.claim))
    }

    /// Takes the lock if nobody holds it and nobody waits for it.
    pub fn try_lock(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&self.claim, Duration::ZERO))
    }

    /// Takes the lock. `None` if it is unavailable for all of `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&self.claim, timeout))
    }
}

impl<D: Driver> MultiLock<D> {
    /// The same locks, and shares of these.
    pub fn and_shared<K: AsRef<[u8]>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys = owned(keys);
        if let Claim::All(modes) = &mut self.claim {
            modes.extend(keys.iter().map(|_| Mode::Shared));
        }
        self.place.keys.extend(keys);
        self
    }
}

impl<D: Driver> RwLock<D> {
    /// Takes a share. Waits as long as it takes. A writer that came first goes first.
    pub fn read(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.take_forever(&SHARE))
    }

    /// Takes a share if no writer holds the lock and nobody waits for it.
    pub fn try_read(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&SHARE, Duration::ZERO))
    }

    /// Takes a share. `None` if there is none to be had for all of `timeout`.
    pub fn read_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&SHARE, timeout))
    }

    /// Takes the lock alone. Waits as long as it takes.
    pub fn write(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.take_forever(&self.claim))
    }

    /// Takes the lock alone if nobody holds it and nobody waits for it.
    pub fn try_write(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&self.claim, Duration::ZERO))
    }

    /// Takes the lock alone. `None` if it is unavailable for all of `timeout`.
    pub fn write_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&self.claim, timeout))
    }
}

impl<D: Driver> Semaphore<D> {
    /// Takes a permit. Waits as long as it takes.
    pub fn acquire(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.take_forever(&self.claim))
    }

    /// Takes a permit if there is one and nobody waits for it.
    pub fn try_acquire(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&self.claim, Duration::ZERO))
    }

    /// Takes a permit. `None` if there is none to be had for all of `timeout`.
    pub fn acquire_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.take(&self.claim, timeout))
    }
}

fn owned<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<Vec<u8>> {
    keys.into_iter().map(|key| key.as_ref().to_vec()).collect()
}

impl<D: Driver, K> Request<D, K> {
    /// The same with another ttl than [`Options::ttl`].
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = bounded_ttl(ttl);
        self
    }

    /// The same with a token of the caller's, 512 bytes at most. Without it each acquire has a new
    /// one.
    ///
    /// The token is the owner: to acquire again with the same token is to hold the same hold. One
    /// token for all the locks of a unit of work lets the server see deadlocks. An acquire that
    /// gives up or is dropped releases what its token holds, so take a new token after that.
    pub fn with_token(mut self, token: impl AsRef<[u8]>) -> Self {
        self.token = Some(token.as_ref().to_vec());
        self
    }

    /// Takes it. `None` if it is unavailable for a time, which begins when this is awaited.
    async fn take(&self, claim: &Claim, time: Duration) -> Result<Option<Guard<D>>> {
        Ok(self.take_or_find(claim, Patience::of(time)).await?.0)
    }

    /// Takes it, or returns the result that is found in its place, or both.
    pub(crate) async fn take_or_find(
        &self,
        claim: &Claim,
        patience: Patience,
    ) -> Result<(Option<Guard<D>>, Option<Value>)> {
        let runtime = D::runtime()?;
        let place = Arc::new(Place {
            token: self.token.clone().unwrap_or_else(new_token),
            is_callers: self.token.is_some(),
            ..self.place.clone()
        });
        let (engine, ttl) = (&self.engine, self.ttl);
        let key = String::from_utf8_lossy(place.key()).into_owned();
        let leftover = Leftover(Some(|| {
            let (engine, place) = (engine.clone(), place.clone());
            let rest = async move {
                let effort = engine.effort(ttl, until(Instant::now(), ttl));
                engine.abandon(&place, effort).await;
            };
            D::settle(&self.engine, &runtime, Box::pin(rest));
        }));
        let mut attempt = engine.attempt(&place, claim, ttl, patience);
        let span = tracing::debug_span!("lock.wait", %key);
        let granted = engine.run(&mut attempt).instrument(span).await;
        let is_clean = matches!(granted, Ok(Some(_))) || engine.clean_up(&attempt).await;
        // A task may wait for the server. It must not meet another acquire with this token.
        if is_clean || D::BLOCKS || place.is_callers {
            leftover.disarm();
        } else {
            drop(leftover);
        }
        let found = attempt.found;
        let guard = granted?.map(|grant| Guard {
            hold: Hold {
                engine: engine.clone(),
                lease: Arc::new(Lease::new(grant, ttl, engine.linger(), claim.clone())),
                place,
                ttl,
                runtime,
                span: tracing::debug_span!("lock.hold", %key, fence = grant.fence),
            },
        });
        Ok((guard, found))
    }

    /// Waits as long as it takes.
    async fn take_forever(&self, claim: &Claim) -> Result<Guard<D>> {
        loop {
            if let Some(guard) = self.take(claim, Duration::MAX).await? {
                return Ok(guard);
            }
        }
    }
}
