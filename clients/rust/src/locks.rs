//! What can be held. A method that asks the server returns a result in [`sync`](crate::sync), and a
//! future of it in `aio`.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tracing::Instrument;

use crate::attempt::Patience;
use crate::command::{Claim, Place, new_token};
use crate::driver::{Driver, Engine};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::lease::Lease;
use crate::options::bounded_ttl;
use crate::settle::Settle;
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
    pub(crate) fn with(connections: D::Connections, options: Options) -> Self {
        Self {
            engine: Engine::new(connections, options),
        }
    }

    /// An exclusive lock. `key` is its name in the server.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock<D> {
        Lock(self.request([key], Claim::Lock))
    }

    /// A reader-writer lock. Readers and writers wait in one queue.
    pub fn rwlock(&self, key: impl AsRef<[u8]>) -> RwLock<D> {
        RwLock(self.request([key], Claim::RwLock(Mode::Exclusive)))
    }

    /// A lock that `permits` guards hold at a time. `key` is its name in the server.
    ///
    /// The number belongs to each acquire. If callers disagree, the smallest counts while its owner
    /// holds a permit.
    pub fn semaphore(&self, key: impl AsRef<[u8]>, permits: u32) -> Semaphore<D> {
        Semaphore(self.request([key], Claim::Permit(permits)))
    }

    /// Several locks as one, taken exclusively. See [`MultiLock::and_shared`] for shares.
    ///
    /// The server refuses a key that is named twice, and in a cluster keys of several slots.
    pub fn multi_lock<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock<D> {
        let request = self.request(keys, Claim::All(Vec::new()));
        let modes = vec![Mode::Exclusive; request.keys.len()];
        MultiLock(Request {
            claim: Claim::All(modes),
            ..request
        })
    }

    /// The lock of a job that runs once.
    pub(crate) async fn job(
        &self,
        key: &[u8],
        at_most: Duration,
        at_least: Duration,
    ) -> Result<Option<Guard<D>>> {
        let ttl = bounded_ttl(at_most);
        let request = Request {
            ttl,
            at_least: (!at_least.is_zero()).then_some(at_least.min(ttl)),
            ..self.request([key], Claim::Lock)
        };
        request.acquire(Patience::None).await
    }

    pub(crate) fn request<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        claim: Claim,
    ) -> Request<D> {
        Request {
            engine: self.engine.clone(),
            keys: owned(keys),
            claim,
            at_least: None,
            token: None,
            ttl: self.engine.options.ttl,
        }
    }
}

/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct Lock<D: Driver>(pub(crate) Request<D>);

/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
#[derive(Clone, Debug)]
pub struct RwLock<D: Driver>(pub(crate) Request<D>);

/// A lock that a number of guards hold at a time. What is held is the [`Guard`], with a token, a ttl
/// and a fence of its own.
#[derive(Clone, Debug)]
pub struct Semaphore<D: Driver>(pub(crate) Request<D>);

/// Several locks as one: the server grants all of them in one step, or none. What is held is one
/// [`Guard`], with one fence. If one of the locks is lost, all are.
///
/// A waiter holds nothing, and has a place in the queue of each key. So requests that cross cannot
/// block one another for ever.
#[derive(Clone, Debug)]
pub struct MultiLock<D: Driver>(pub(crate) Request<D>);

impl<D: Driver> Lock<D> {
    /// The same lock with another ttl than [`Options::ttl`].
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self(self.0.with_ttl(ttl))
    }

    /// The same lock with a token of the caller's, 512 bytes at most. Without it each acquire has a
    /// new one.
    ///
    /// The token is the owner: to acquire again with the same token is to hold the same hold. One
    /// token for all the locks of a unit of work lets the server see deadlocks. An acquire that gives
    /// up or is dropped releases what its token holds, so take a new token after that.
    pub fn with_token(self, token: impl AsRef<[u8]>) -> Self {
        Self(self.0.with_token(token.as_ref()))
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Takes the lock. Waits as long as it takes.
    pub fn lock(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.0.acquire_forever())
    }

    /// Takes the lock if nobody holds it and nobody waits for it.
    pub fn try_lock(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire(Patience::None))
    }

    /// Takes the lock. `None` if it is unavailable for all of `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire_within(timeout))
    }
}

impl<D: Driver> RwLock<D> {
    /// See [`Lock::with_ttl`].
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self(self.0.with_ttl(ttl))
    }

    /// See [`Lock::with_token`].
    pub fn with_token(self, token: impl AsRef<[u8]>) -> Self {
        Self(self.0.with_token(token.as_ref()))
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Takes a share. Waits as long as it takes. A writer that came first goes first.
    pub fn read(&self) -> D::Done<'_, Result<Guard<D>>> {
        let share = self.share();
        D::done(async move { share.acquire_forever().await })
    }

    /// Takes a share if no writer holds the lock and nobody waits for it.
    pub fn try_read(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        let share = self.share();
        D::done(async move { share.acquire(Patience::None).await })
    }

    /// Takes a share. `None` if there is none to be had for all of `timeout`.
    pub fn read_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        let share = self.share();
        D::done(async move { share.acquire_within(timeout).await })
    }

    /// Takes the lock alone. Waits as long as it takes.
    pub fn write(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.0.acquire_forever())
    }

    /// Takes the lock alone if nobody holds it and nobody waits for it.
    pub fn try_write(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire(Patience::None))
    }

    /// Takes the lock alone. `None` if it is unavailable for all of `timeout`.
    pub fn write_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire_within(timeout))
    }

    fn share(&self) -> Request<D> {
        Request {
            claim: Claim::RwLock(Mode::Shared),
            ..self.0.clone()
        }
    }
}

impl<D: Driver> Semaphore<D> {
    /// See [`Lock::with_ttl`].
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self(self.0.with_ttl(ttl))
    }

    /// See [`Lock::with_token`].
    pub fn with_token(self, token: impl AsRef<[u8]>) -> Self {
        Self(self.0.with_token(token.as_ref()))
    }

    /// The key of the semaphore.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Takes a permit. Waits as long as it takes.
    pub fn acquire(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.0.acquire_forever())
    }

    /// Takes a permit if there is one and nobody waits for it.
    pub fn try_acquire(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire(Patience::None))
    }

    /// Takes a permit. `None` if there is none to be had for all of `timeout`.
    pub fn acquire_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire_within(timeout))
    }
}

impl<D: Driver> MultiLock<D> {
    /// See [`Lock::with_ttl`].
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self(self.0.with_ttl(ttl))
    }

    /// See [`Lock::with_token`].
    pub fn with_token(self, token: impl AsRef<[u8]>) -> Self {
        Self(self.0.with_token(token.as_ref()))
    }

    /// The first key.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The same locks, and shares of these.
    pub fn and_shared<K: AsRef<[u8]>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys = owned(keys);
        if let Claim::All(modes) = &mut self.0.claim {
            modes.extend(keys.iter().map(|_| Mode::Shared));
        }
        self.0.keys.extend(keys);
        self
    }

    /// Takes all. Waits as long as it takes.
    pub fn lock(&self) -> D::Done<'_, Result<Guard<D>>> {
        D::done(self.0.acquire_forever())
    }

    /// Takes all if none is held and nobody waits for any.
    pub fn try_lock(&self) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire(Patience::None))
    }

    /// Takes all. `None` if they are not available together for all of `timeout`.
    pub fn lock_timeout(&self, timeout: Duration) -> D::Done<'_, Result<Option<Guard<D>>>> {
        D::done(self.0.acquire_within(timeout))
    }
}

fn owned<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Vec<Vec<u8>> {
    keys.into_iter().map(|key| key.as_ref().to_vec()).collect()
}

/// What is asked for, and how.
#[derive(Clone, Debug)]
pub(crate) struct Request<D: Driver> {
    engine: Arc<Engine<D>>,
    keys: Vec<Vec<u8>>,
    claim: Claim,
    at_least: Option<Duration>,
    token: Option<Vec<u8>>,
    ttl: Duration,
}

impl<D: Driver> Request<D> {
    pub(crate) fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = bounded_ttl(ttl);
        self
    }

    fn with_token(mut self, token: &[u8]) -> Self {
        self.token = Some(token.to_vec());
        self
    }

    fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }

    /// The place of the next acquire.
    fn place(&self) -> Place {
        Place {
            key: self.key().to_vec(),
            more: self.keys.iter().skip(1).cloned().collect(),
            token: self.token.clone().unwrap_or_else(new_token),
            at_least: self.at_least,
        }
    }

    /// Takes it. `None` if it is unavailable for as long as the patience is.
    async fn acquire(&self, patience: Patience) -> Result<Option<Guard<D>>> {
        Ok(self.acquire_or_find(patience).await?.0)
    }

    /// Takes it, or returns the result that is found in its place, or both.
    pub(crate) async fn acquire_or_find(
        &self,
        patience: Patience,
    ) -> Result<(Option<Guard<D>>, Option<Value>)> {
        if !D::is_ready() {
            return Err(Error::NoRuntime);
        }
        let (engine, place) = (&self.engine, Arc::new(self.place()));
        let key = String::from_utf8_lossy(&place.key).into_owned();
        let mut settle = Settle::request(engine, &place, self.ttl);
        let granted = engine
            .acquire(&place, &self.claim, self.ttl, patience)
            .instrument(tracing::debug_span!("lock.wait", %key))
            .await;
        settle.disarm();
        let (granted, found) = granted?;
        let guard = granted.map(|grant| Guard {
            hold: Hold {
                engine: engine.clone(),
                lease: Lease::new(grant, self.ttl, engine.linger(), self.claim.clone()),
                place,
                ttl: self.ttl,
                runtime: D::runtime(),
                span: tracing::debug_span!("lock.hold", %key, fence = grant.fence),
            },
        });
        Ok((guard, found))
    }

    /// Takes it within a time, which begins when it is awaited.
    async fn acquire_within(&self, time: Duration) -> Result<Option<Guard<D>>> {
        self.acquire(Patience::of(time)).await
    }

    /// Waits as long as it takes.
    async fn acquire_forever(&self) -> Result<Guard<D>> {
        loop {
            if let Some(guard) = self.acquire(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }
}
