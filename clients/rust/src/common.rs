//! What the types of `sync` and `aio` have in common.

use std::time::Duration;

use crate::Mode;
use crate::command::{Claim, Place, new_token};
use crate::options::bounded_ttl;

/// The common part of all that is acquired. `C` is the client of the module.
#[derive(Clone, Debug)]
pub(crate) struct Named<C> {
    pub(crate) client: C,
    pub(crate) key: Vec<u8>,
    /// The other keys of several.
    pub(crate) more: Vec<Vec<u8>>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) ttl: Duration,
}

impl<C: Clone> Named<C> {
    pub(crate) fn new(client: &C, key: &[u8], ttl: Duration) -> Self {
        Self {
            client: client.clone(),
            key: key.to_vec(),
            more: Vec::new(),
            at_least: None,
            token: None,
            ttl,
        }
    }

    /// With all of several keys.
    pub(crate) fn all<K: AsRef<[u8]>>(client: &C, keys: &[K], ttl: Duration) -> Self {
        let mut keys = keys.iter().map(|key| key.as_ref().to_vec());
        let first = keys.next().unwrap_or_default();
        Self {
            more: keys.collect(),
            ..Self::new(client, &first, ttl)
        }
    }

    /// For a job that runs once: held for `at_most`, and after the job until `at_least`.
    pub(crate) fn once(client: &C, key: &[u8], at_most: Duration, at_least: Duration) -> Self {
        let ttl = bounded_ttl(at_most);
        Self {
            at_least: (!at_least.is_zero()).then_some(at_least.min(ttl)),
            ..Self::new(client, key, ttl)
        }
    }

    /// The place of the next acquire.
    pub(crate) fn place(&self) -> Place {
        Place {
            more: self.more.clone(),
            at_least: self.at_least,
            ..Place::new(&self.key, self.token.clone().unwrap_or_else(new_token))
        }
    }
}

/// Each key of several, and how it is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) modes: Vec<Mode>,
}

impl Parts {
    pub(crate) fn add<K: AsRef<[u8]>>(
        mut self,
        keys: impl IntoIterator<Item = K>,
        mode: Mode,
    ) -> Self {
        for key in keys {
            self.keys.push(key.as_ref().to_vec());
            self.modes.push(mode);
        }
        self
    }

    pub(crate) fn claim(&self) -> Claim {
        Claim::All(self.modes.clone())
    }
}

/// The settings of all the locks. The argument says how an acquire may end without a guard.
macro_rules! settings {
    ($ends:literal) => {
        /// The same lock with another ttl than [`Options::ttl`](crate::Options::ttl).
        pub fn with_ttl(mut self, ttl: std::time::Duration) -> Self {
            self.0.ttl = crate::options::bounded_ttl(ttl);
            self
        }

        /// The same lock with a token of the caller's, 512 bytes at most. Without it each acquire
        /// has a new one.
        ///
        /// The token is the owner: to acquire again with the same token is to hold the same hold.
        /// One token for all the locks of a unit of work lets the server see deadlocks.
        #[doc = concat!("An acquire that ", $ends, " releases what its token holds, so take a new")]
        /// token after that.
        pub fn with_token(mut self, token: impl AsRef<[u8]>) -> Self {
            self.0.token = Some(token.as_ref().to_vec());
            self
        }

        /// The key of the lock.
        pub fn key(&self) -> &[u8] {
            &self.0.key
        }
    };
}
pub(crate) use settings;

/// The locks of both clients. `$done` waits for a future, as the client's functions do. `$ends`
/// says how an acquire may end without a guard.
macro_rules! locks {
    ([$($async:tt)*], $done:ident, $ends:literal) => {
        use crate::Mode;

        impl LockClient {
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
            /// The number belongs to each acquire. If callers disagree, the smallest counts while
            /// its owner holds a permit.
            pub fn semaphore(&self, key: impl AsRef<[u8]>, permits: u32) -> Semaphore {
                Semaphore(self.named(key.as_ref()), permits)
            }

            /// Several locks as one, taken exclusively. See [`MultiLock::and_shared`] for shares.
            ///
            /// The server refuses a key that is named twice, and in a cluster keys of several
            /// slots.
            pub fn multi_lock<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> MultiLock {
                MultiLock::new(self, Parts::default().add(keys, Mode::Exclusive))
            }

            fn named(&self, key: &[u8]) -> Named<Self> {
                Named::new(self, key, self.inner.options.ttl)
            }
        }

        impl std::fmt::Debug for LockClient {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("LockClient")
                    .field("options", &self.inner.options)
                    .finish_non_exhaustive()
            }
        }

        impl Named<LockClient> {
            async fn acquire(&self, claim: Claim, patience: Patience) -> Result<Option<Guard>> {
                let place = std::sync::Arc::new(self.place());
                let inner = &self.client.inner;
                let granted = acquire(inner, &place, &claim, self.ttl, patience).await?;
                let guard = |grant| Guard::new(Hold::new(inner, place, claim, grant, self.ttl));
                Ok(granted.map(guard))
            }

            /// Waits as long as it takes.
            async fn acquire_forever(&self, claim: Claim) -> Result<Guard> {
                loop {
                    if let Some(guard) = self.acquire(claim.clone(), Patience::Forever).await? {
                        return Ok(guard);
                    }
                }
            }
        }

        /// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
        #[derive(Clone, Debug)]
        pub struct Lock(Named<LockClient>);

        impl Lock {
            crate::common::settings!($ends);

            /// Takes the lock. Waits as long as it takes.
            pub $($async)* fn lock(&self) -> Result<Guard> {
                $done!(self.0.acquire_forever(Claim::Lock))
            }

            /// Takes the lock if nobody holds it and nobody waits for it.
            pub $($async)* fn try_lock(&self) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::Lock, Patience::None))
            }

            /// Takes the lock. `None` if it is unavailable for all of `timeout`.
            pub $($async)* fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::Lock, Patience::of(timeout)))
            }
        }

        /// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
        #[derive(Clone, Debug)]
        pub struct RwLock(Named<LockClient>);

        impl RwLock {
            crate::common::settings!($ends);

            /// Takes a share. Waits as long as it takes. A writer that came first goes first.
            pub $($async)* fn read(&self) -> Result<Guard> {
                $done!(self.0.acquire_forever(Claim::RwLock(Mode::Shared)))
            }

            /// Takes a share if no writer holds the lock and nobody waits for it.
            pub $($async)* fn try_read(&self) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::RwLock(Mode::Shared), Patience::None))
            }

            /// Takes a share. `None` if there is none to be had for all of `timeout`.
            pub $($async)* fn read_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::RwLock(Mode::Shared), Patience::of(timeout)))
            }

            /// Takes the lock alone. Waits as long as it takes.
            pub $($async)* fn write(&self) -> Result<Guard> {
                $done!(self.0.acquire_forever(Claim::RwLock(Mode::Exclusive)))
            }

            /// Takes the lock alone if nobody holds it and nobody waits for it.
            pub $($async)* fn try_write(&self) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::RwLock(Mode::Exclusive), Patience::None))
            }

            /// Takes the lock alone. `None` if it is unavailable for all of `timeout`.
            pub $($async)* fn write_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::RwLock(Mode::Exclusive), Patience::of(timeout)))
            }
        }

        /// A lock that a number of guards hold at a time. What is held is the [`Guard`], with a
        /// token, a ttl and a fence of its own.
        #[derive(Clone, Debug)]
        pub struct Semaphore(Named<LockClient>, u32);

        impl Semaphore {
            crate::common::settings!($ends);

            /// Takes a permit. Waits as long as it takes.
            pub $($async)* fn acquire(&self) -> Result<Guard> {
                $done!(self.0.acquire_forever(Claim::Permit(self.1)))
            }

            /// Takes a permit if there is one and nobody waits for it.
            pub $($async)* fn try_acquire(&self) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::Permit(self.1), Patience::None))
            }

            /// Takes a permit. `None` if there is none to be had for all of `timeout`.
            pub $($async)* fn acquire_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
                $done!(self.0.acquire(Claim::Permit(self.1), Patience::of(timeout)))
            }
        }

        /// Several locks as one: the server grants all of them in one step, or none. What is held
        /// is one [`Guard`], with one fence. If one of the locks is lost, all are.
        ///
        /// A waiter holds nothing, and has a place in the queue of each key. So requests that cross
        /// cannot block one another for ever.
        #[derive(Clone, Debug)]
        pub struct MultiLock(Named<LockClient>, Parts);

        impl MultiLock {
            fn new(client: &LockClient, parts: Parts) -> Self {
                let named = Named::all(client, &parts.keys, client.inner.options.ttl);
                Self(named, parts)
            }

            crate::common::settings!($ends);

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
            pub $($async)* fn lock(&self) -> Result<Guard> {
                $done!(self.0.acquire_forever(self.1.claim()))
            }

            /// Takes all if none is held and nobody waits for any.
            pub $($async)* fn try_lock(&self) -> Result<Option<Guard>> {
                $done!(self.0.acquire(self.1.claim(), Patience::None))
            }

            /// Takes all. `None` if they are not available together for all of `timeout`.
            pub $($async)* fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard>> {
                $done!(self.0.acquire(self.1.claim(), Patience::of(timeout)))
            }
        }
    };
}
pub(crate) use locks;

/// What the guards of both clients have. `$done` waits for a future, as the client's functions do.
macro_rules! guard {
    ([$($async:tt)*], $done:ident, $example:literal) => {
        impl Guard {
            /// The key of the lock, the first one of several.
            pub fn key(&self) -> &[u8] {
                &self.hold.place.key
            }

            /// The token by which the server knows the owner.
            pub fn token(&self) -> &[u8] {
                &self.hold.place.token
            }

            /// A number larger than that of every hold before. Send it with every write.
            pub fn fence(&self) -> u64 {
                self.hold.lease.fence()
            }

            /// How the lock is held. Of several locks: exclusively, if one of them is.
            pub fn mode(&self) -> crate::Mode {
                self.hold.lease.claim().mode()
            }

            /// Until when the lock is surely held if nothing renews it. It is too late only on a
            /// machine that sleeps: see docs/ADAPTERS.md.
            pub fn valid_until(&self) -> std::time::Instant {
                self.hold.lease.until()
            }

            /// Whether the hold is over: a command or the watchdog has seen it, or its time has
            /// passed.
            pub fn is_lost(&self) -> bool {
                self.hold.lease.is_lost()
            }

            /// Sets the deadline to the lock's ttl from now on.
            /// [`Error::NotHeld`](crate::Error::NotHeld) if the hold is over.
            pub $($async)* fn renew(&self) -> Result<()> {
                $done!(self.hold.extend(self.hold.ttl))
            }

            /// Sets the deadline to `ttl` from now on, which may also be earlier.
            /// [`Error::NotHeld`](crate::Error::NotHeld) if the hold is over.
            ///
            /// A server that is away is asked again until the lease ends, and for no longer than
            /// [`Options::reconnect`](crate::Options::reconnect).
            pub $($async)* fn extend(&self, ttl: std::time::Duration) -> Result<()> {
                $done!(self.hold.extend(ttl))
            }

            /// Asks the server whether this is held now, where [`Guard::is_lost`] asks nobody. False
            /// without asking after [`Guard::valid_until`].
            pub $($async)* fn check(&self) -> Result<bool> {
                $done!(self.hold.check())
            }

            /// Has the server run a command only if this is held now, in one step.
            /// [`Error::NotHeld`](crate::Error::NotHeld) if it is not; then nothing was done.
            ///
            #[doc = $example]
            ///
            /// It is sent once: after an error of the connection the command may have run or not.
            /// Of several locks the first one is looked at.
            pub $($async)* fn exec<T: redis::FromRedisValue>(
                &self,
                command: &redis::Cmd,
            ) -> Result<T> {
                $done!(self.hold.exec(command))
            }

            /// Makes a writer a reader in one step, with the same fence. Readers that wait at the
            /// head enter at once.
            ///
            /// It counts as a reader as soon as that is sent. After an error the server may have it
            /// as a writer yet: another `downgrade` asks again.
            pub $($async)* fn downgrade(&mut self) -> Result<()> {
                $done!(self.become_reader())
            }

            /// Makes the only reader the writer. False if there are others; then it is a reader
            /// still.
            pub $($async)* fn try_upgrade(&mut self) -> Result<bool> {
                $done!(self.upgrade_with(Patience::None))
            }

            /// Makes the only reader the writer. False if there are others for all of `timeout`;
            /// then it is a reader still.
            pub $($async)* fn upgrade_timeout(
                &mut self,
                timeout: std::time::Duration,
            ) -> Result<bool> {
                $done!(self.upgrade_with(Patience::of(timeout)))
            }
        }

        /// The token is left out.
        impl std::fmt::Debug for Guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("Guard")
                    .field("key", &String::from_utf8_lossy(self.key()))
                    .field("fence", &self.fence())
                    .field("mode", &self.mode())
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use guard;
