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

/// The settings of `Lock` and `RwLock`. The argument says how an acquire may end without a guard.
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

/// The accessors of a `Guard`, which ask nobody.
macro_rules! accessors {
    () => {
        /// The key of the lock, the first one of several.
        pub fn key(&self) -> &[u8] {
            &self.place.key
        }

        /// The token by which the server knows the owner.
        pub fn token(&self) -> &[u8] {
            &self.place.token
        }

        /// A number larger than that of every hold before. Send it with every write.
        pub fn fence(&self) -> u64 {
            self.lease.fence()
        }

        /// How the lock is held. Of several locks: exclusively, if one of them is.
        pub fn mode(&self) -> crate::Mode {
            self.claim.mode()
        }

        /// Until when the lock is surely held if nothing renews it. It is never too late.
        pub fn valid_until(&self) -> std::time::Instant {
            self.lease.until()
        }

        /// Whether the hold is over: a command or the watchdog has seen it, or its time has passed.
        pub fn is_lost(&self) -> bool {
            self.lease.is_lost()
        }

        fn still_held(&self) -> crate::Result<()> {
            match self.lease.is_held() {
                true => Ok(()),
                false => Err(crate::Error::NotHeld),
            }
        }

        fn convertible(&self) -> crate::Result<()> {
            match self.claim.converts() {
                true => Ok(()),
                false => Err(crate::Error::NoConversion),
            }
        }
    };
}
pub(crate) use accessors;

/// How a `Guard` is printed. The token is left out.
macro_rules! debug_guard {
    ($guard:ty) => {
        impl std::fmt::Debug for $guard {
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
pub(crate) use debug_guard;
