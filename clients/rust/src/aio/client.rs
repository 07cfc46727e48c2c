use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, IntoConnectionInfo, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::ear::Ear;
use super::guard::Guard;
use super::hub::Hub;
use super::transport::{Borrowed, Own, SharedConnection, Transport};
use crate::attempt::{OwnerAnswer, PACE, Patience, owner_answer};
use crate::common::{Named, settings};
use crate::error::{Result, is_unanswered};
use crate::options::Options;
use crate::support::Support;
use crate::{Error, Mode};

/// Makes locks. One client serves all tasks of a program, and a clone is the same client.
#[derive(Clone)]
pub struct LockClient {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    transport: Box<dyn Transport>,
    /// Makes the connections that block. Without it a waiter asks again and again.
    pub(super) client: Option<Client>,
    pub(super) ear: Ear,
    pub(super) options: Options,
    pub(super) support: Support,
    pub(super) hub: Arc<Hub>,
    /// As many connections may block at a time.
    pub(super) waiting: Semaphore,
    idle: Mutex<Vec<MultiplexedConnection>>,
    pub(super) runtime: Handle,
}

impl LockClient {
    /// Makes a client of the server at an address. It connects when the first command is sent.
    ///
    /// [`Error::NoRuntime`] outside a tokio runtime.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Self::new(Client::open(address)?, options)
    }

    /// Makes a client with connections of its own: one that all tasks share, and one that listens
    /// for grants.
    pub fn new(client: Client, options: Options) -> Result<Self> {
        let transport = Own::new(client.clone());
        Self::build(Box::new(transport), Some(client), options, Hub::new())
    }

    /// Makes a client that sends its commands over the program's connection. `client` makes the one
    /// that listens.
    ///
    /// Take a `ConnectionManager`: a `MultiplexedConnection` that failed once fails for ever.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Options, aio::LockClient};
    /// # async fn example() -> redis_lock_client::Result<()> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let connection = client.get_connection_manager().await?;
    /// let locks = LockClient::with_connection(client, connection, Options::default())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_connection(
        client: Client,
        connection: impl SharedConnection,
        options: Options,
    ) -> Result<Self> {
        let transport = Borrowed(connection);
        Self::build(Box::new(transport), Some(client), options, Hub::new())
    }

    /// Makes a client that has the program's connection only.
    ///
    /// Nothing listens, so a waiter asks again every 50 ms. Its place in the queue is kept
    /// meanwhile, if the server's module is 0.2 or newer.
    pub fn polling(connection: impl SharedConnection, options: Options) -> Result<Self> {
        Self::build(Box::new(Borrowed(connection)), None, options, Hub::new())
    }

    /// Makes a client of a cluster. It sets the protocol to RESP3 and listens on shard channels, which
    /// servers have from 7.0 on. Where there are none a waiter asks again every 50 ms.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Options, aio::LockClient};
    /// # async fn example() -> redis_lock_client::Result<()> {
    /// let nodes = ["redis://127.0.0.1:7000", "redis://127.0.0.1:7001"];
    /// let cluster = redis::cluster::ClusterClientBuilder::new(nodes);
    /// let locks = LockClient::cluster(cluster, Options::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    pub async fn cluster(
        cluster: redis::cluster::ClusterClientBuilder,
        options: Options,
    ) -> Result<Self> {
        let (sender, pushes) = tokio::sync::mpsc::unbounded_channel();
        let connection = cluster
            .use_protocol(redis::ProtocolVersion::RESP3)
            .push_sender(sender)
            .build()?
            .get_async_connection()
            .await?;
        let hub = Hub::new();
        let ear = Ear::shards(connection.clone(), pushes, &hub);
        let transport = Box::new(Borrowed(connection));
        let mut locks = Self::build(transport, None, options, hub)?;
        if let Some(inner) = Arc::get_mut(&mut locks.inner) {
            inner.ear = ear;
        }
        Ok(locks)
    }

    fn build(
        transport: Box<dyn Transport>,
        client: Option<Client>,
        options: Options,
        hub: Arc<Hub>,
    ) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        Ok(Self {
            inner: Arc::new(Inner {
                transport,
                ear: client.clone().map_or(Ear::Deaf, Ear::Channel),
                client,
                support: Support::default(),
                hub,
                waiting: Semaphore::new(
                    options.max_waiting_connections.min(Semaphore::MAX_PERMITS),
                ),
                options,
                idle: Mutex::default(),
                runtime,
            }),
        })
    }

    /// An exclusive lock. `key` is its name in the server.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.named(key.as_ref()))
    }

    /// A reader-writer lock. Readers and writers wait in one queue.
    pub fn rwlock(&self, key: impl AsRef<[u8]>) -> RwLock {
        RwLock(self.named(key.as_ref()))
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
    async fn acquire(&self, how: (Mode, bool), patience: Patience) -> Result<Option<Guard>> {
        let place = Arc::new(self.place());
        let inner = &self.client.inner;
        let Some(grant) = inner.acquire(&place, how, self.ttl, patience).await? else {
            return Ok(None);
        };
        Ok(Some(Guard::new(
            &self.client,
            place,
            how.0,
            grant,
            self.ttl,
        )))
    }

    /// Waits as long as it takes.
    async fn acquire_forever(&self, how: (Mode, bool)) -> Result<Guard> {
        loop {
            if let Some(guard) = self.acquire(how, Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }
}

/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct Lock(Named<LockClient>);

impl Lock {
    settings!("gives up or is dropped");

    /// Takes the lock. Waits as long as it takes.
    pub async fn lock(&self) -> Result<Guard> {
        self.0.acquire_forever((Mode::Exclusive, false)).await
    }

    /// Takes the lock if nobody holds it and nobody waits for it.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        let how = (Mode::Exclusive, false);
        self.0.acquire(how, Patience::None).await
    }

    /// Takes the lock. `None` if it is unavailable for all of `timeout`.
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        let how = (Mode::Exclusive, false);
        self.0.acquire(how, Patience::of(timeout)).await
    }
}

/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct RwLock(Named<LockClient>);

impl RwLock {
    settings!("gives up or is dropped");

    /// Takes a share. Waits as long as it takes. A writer that came first goes first.
    pub async fn read(&self) -> Result<Guard> {
        self.0.acquire_forever((Mode::Shared, true)).await
    }

    /// Takes a share if no writer holds the lock and nobody waits for it.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.0.acquire((Mode::Shared, true), Patience::None).await
    }

    /// Takes a share. `None` if there is none to be had for all of `timeout`.
    pub async fn read_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        let how = (Mode::Shared, true);
        self.0.acquire(how, Patience::of(timeout)).await
    }

    /// Takes the lock alone. Waits as long as it takes.
    pub async fn write(&self) -> Result<Guard> {
        self.0.acquire_forever((Mode::Exclusive, true)).await
    }

    /// Takes the lock alone if nobody holds it and nobody waits for it.
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        let how = (Mode::Exclusive, true);
        self.0.acquire(how, Patience::None).await
    }

    /// Takes the lock alone. `None` if it is unavailable for all of `timeout`.
    pub async fn write_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
        let how = (Mode::Exclusive, true);
        self.0.acquire(how, Patience::of(timeout)).await
    }
}

impl Inner {
    /// Sends a command that is answered at once.
    pub(super) async fn ask(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        self.transport
            .ask(command, time)
            .await
            .and_then(Value::extract_error)
    }

    /// Sends a command of an owner until it is answered, for as long as `patience`. A repetition
    /// does no harm.
    ///
    /// Returns whether it did what it says, and whether an answer was lost before.
    pub(super) async fn insist(
        &self,
        command: &Cmd,
        time: Duration,
        patience: Duration,
    ) -> Result<(bool, bool)> {
        let start = Instant::now();
        let mut was_lost = false;
        loop {
            match owner_answer(self.ask(command, time).await) {
                OwnerAnswer::Done => return Ok((true, was_lost)),
                OwnerAnswer::NotHeld => return Ok((false, was_lost)),
                OwnerAnswer::Failed(error) => return Err(error),
                OwnerAnswer::MayPass(error) => {
                    was_lost |= is_unanswered(&error);
                    if start.elapsed() >= patience {
                        return Err(Error::from(error));
                    }
                }
            }
            sleep(PACE).await;
        }
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
