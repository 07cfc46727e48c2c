use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Client, IntoConnectionInfo};
use tokio::runtime::Handle;

use super::ear::Ear;
use super::guard::Guard;
use super::hub::Hub;
use super::inner::{Inner, Tasks};
use super::settle::acquire;
use super::transport::{Borrowed, Own, SharedConnection, Source, Transport};
use crate::Error;
use crate::attempt::Patience;
use crate::command::Claim;
use crate::common::{Named, Parts, locks};
use crate::error::Result;
use crate::hold::Hold;
use crate::info::unnamed;
use crate::options::Options;

/// Makes locks. One client serves all tasks of a program, and a clone is the same client.
#[derive(Clone)]
pub struct LockClient {
    pub(super) inner: Arc<Inner>,
}

impl LockClient {
    /// Makes a client of the server at an address. It connects when the first command is sent.
    ///
    /// It does not send CLIENT SETINFO. A `redis::Client` that [`LockClient::new`] gets may do so.
    ///
    /// [`Error::NoRuntime`] outside a tokio runtime.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Self::new(Client::open(unnamed(address)?)?, options)
    }

    /// Makes a client with connections of its own: one that all tasks share, and one that listens
    /// for grants.
    pub fn new(client: Client, options: Options) -> Result<Self> {
        Self::with_source(Source::Server(client), options)
    }

    fn with_source(source: Source, options: Options) -> Result<Self> {
        let hub = Hub::new();
        let transport = Own::new(source.clone(), Some(hub.renewed.clone()));
        Self::build(Box::new(transport), Some(source), options, hub)
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
        let hub = Hub::new();
        let transport = Borrowed(connection, hub.renewed.clone());
        let source = Some(Source::Server(client));
        Self::build(Box::new(transport), source, options, hub)
    }

    /// Makes a client that has the program's connection only.
    ///
    /// Nothing listens, so a waiter asks again every 50 ms. Its place in the queue is kept
    /// meanwhile.
    pub fn polling(connection: impl SharedConnection, options: Options) -> Result<Self> {
        let hub = Hub::new();
        let transport = Borrowed(connection, hub.renewed.clone());
        Self::build(Box::new(transport), None, options, hub)
    }

    /// Makes a client of the primary that sentinels name. It follows a failover with its tokens.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Options, Sentinel, aio::LockClient};
    /// # async fn example() -> redis_lock_client::Result<()> {
    /// let sentinel = Sentinel::new(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "locks")?;
    /// let locks = LockClient::sentinel(sentinel, Options::default())?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "sentinel")))]
    pub fn sentinel(sentinel: crate::Sentinel, options: Options) -> Result<Self> {
        let source = Source::Primary(super::sentinel::Primary(Arc::new(sentinel)));
        Self::with_source(source, options.with_failover())
    }

    /// Makes a client of the cluster that has these nodes, and others. Each lock is on the node of
    /// its key. A waiter follows its slot and a failover with its token.
    ///
    /// Credentials and TLS are those of the first address, for all nodes. It listens on a shard
    /// channel for each slot that is waited for. Where that is not possible a waiter asks again
    /// every 50 ms.
    ///
    /// ```no_run
    /// # use redis_lock_client::{Options, aio::LockClient};
    /// # async fn example() -> redis_lock_client::Result<()> {
    /// let nodes = ["redis://127.0.0.1:7000", "redis://127.0.0.1:7001"];
    /// let locks = LockClient::cluster(nodes, Options::default())?;
    /// // The keys of several locks need one slot, so they share what is in braces.
    /// let both = locks.multi_lock(["{stock}:7", "{stock}:8"]).lock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster-async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster-async")))]
    pub fn cluster<A: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = A>,
        options: Options,
    ) -> Result<Self> {
        use super::cluster::Nodes;

        Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let topology = crate::cluster::Topology::new(nodes)?;
        let hub = Hub::new();
        let nodes = Arc::new(Nodes::new(topology, &hub));
        let transport = Box::new(nodes.clone());
        let mut locks = Self::build(transport, None, options.with_failover(), hub)?;
        if let Some(inner) = Arc::get_mut(&mut locks.inner) {
            inner.wire.ear = Ear::Shards(nodes);
        }
        Ok(locks)
    }

    fn build(
        transport: Box<dyn Transport>,
        source: Option<Source>,
        options: Options,
        hub: Arc<Hub>,
    ) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let permits = options
            .max_waiting_connections
            .min(tokio::sync::Semaphore::MAX_PERMITS);
        let tasks = Tasks {
            transport,
            ear: source.clone().map_or(Ear::Deaf, Ear::Channel),
            source,
            hub,
            waiting: tokio::sync::Semaphore::new(permits),
            idle: Mutex::default(),
            runtime,
        };
        Ok(Self {
            inner: Inner::new(tasks, options),
        })
    }

    /// Runs a job unless somebody runs it now, or ran it less than `at_least` ago. `None` if it did
    /// not run here. It does not wait.
    ///
    /// The lock is held for `at_most`, and not renewed: a job that takes longer may run twice. The
    /// lock is released after the job, also if that panics or this future is dropped. But it is held
    /// until `at_least` has passed since the grant, by the server's clock.
    pub async fn run_once<T>(
        &self,
        key: impl AsRef<[u8]>,
        at_most: Duration,
        at_least: Duration,
        job: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<Option<T>> {
        let named = Named::once(self, key.as_ref(), at_most, at_least);
        let Some(guard) = named.acquire(Claim::Lock, Patience::None).await? else {
            return Ok(None);
        };
        let result = job(&guard).await;
        if let Err(error) = guard.unlock().await {
            log::warn!("the lock of a job was not released by it: {error}");
        }
        Ok(Some(result))
    }
}

macro_rules! done {
    ($future:expr) => {
        $future.await
    };
}

locks!([async], done, "gives up or is dropped");
