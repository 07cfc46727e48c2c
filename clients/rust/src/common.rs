//! What the types of `sync` and `aio` have in common.

use std::time::Duration;

use crate::command::{Place, new_token};

/// The common part of `Lock` and `RwLock`. `C` is the client of the module.
#[derive(Clone, Debug)]
pub(crate) struct Named<C> {
    pub(crate) client: C,
    pub(crate) key: Vec<u8>,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) ttl: Duration,
}

impl<C: Clone> Named<C> {
    pub(crate) fn new(client: &C, key: &[u8], ttl: Duration) -> Self {
        Self {
            client: client.clone(),
            key: key.to_vec(),
            token: None,
            ttl,
        }
    }

    /// The place of the next acquire.
    pub(crate) fn place(&self) -> Place {
        Place {
            key: self.key.clone(),
            token: self.token.clone().unwrap_or_else(new_token),
        }
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
        /// The key of the lock.
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

        /// How the lock is held.
        pub fn mode(&self) -> crate::Mode {
            self.mode
        }

        /// Until when the lock is surely held if nothing renews it. It is never too late.
        pub fn valid_until(&self) -> std::time::Instant {
            self.lease.until()
        }

        /// Whether the hold is over: a command or the watchdog has seen it, or its time has passed.
        pub fn is_lost(&self) -> bool {
            self.lease.is_lost()
        }

        fn check(&self) -> crate::Result<()> {
            match self.lease.is_held() {
                true => Ok(()),
                false => Err(crate::Error::NotHeld),
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
                    .field("mode", &self.mode)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_guard;
