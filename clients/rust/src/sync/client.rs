use std::sync::Arc;
use std::time::Duration;

use redis::IntoConnectionInfo;

use super::connect::Connect;
use super::guard::Guard;
use super::inner::{Blocking, Inner, now};
use crate::attempt::Patience;
use crate::command::{Claim, Place};
use crate::common::{Named, Parts, locks};
use crate::error::Result;
use crate::hold::Hold;
use crate::info::unnamed;
use crate::lease::Grant;
use crate::options::Options;

/// Makes locks. One client serves all threads of a program, and a clone is the same client.
#[derive(Clone)]
pub struct LockClient {
    pub(super) inner: Arc<Inner>,
}

impl LockClient {
    /// Makes a client of the server at an address. It connects when the first command is sent.
    ///
    /// It does not send CLIENT SETINFO. A `redis::Client` that [`LockClient::new`] gets may do so.
    pub fn open(address: impl IntoConnectionInfo, options: Options) -> Result<Self> {
        Ok(Self::new(redis::Client::open(unnamed(address)?)?, options))
    }

    /// Makes a client of a `redis::Client`, or of anything else that makes connections.
    pub fn new(connect: impl Connect + 'static, options: Options) -> Self {
        Self {
            inner: Inner::new(Blocking::new(connect), options),
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
        let named = Named::once(self, key.as_ref(), at_most, at_least);
        let Some(guard) = now(named.acquire(Claim::Lock, Patience::None))? else {
            return Ok(None);
        };
        let result = job(&guard);
        if let Err(error) = guard.unlock() {
            log::warn!("the lock of a job was not released by it: {error}");
        }
        Ok(Some(result))
    }
}

macro_rules! done {
    ($future:expr) => {
        now($future)
    };
}

locks!([], done, "gives up");

async fn acquire(
    inner: &Arc<Inner>,
    place: &Arc<Place>,
    claim: &Claim,
    ttl: Duration,
    patience: Patience,
) -> Result<Option<Grant>> {
    inner.acquire(place, claim, ttl, patience).await
}
