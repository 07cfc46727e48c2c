//! Locks over a connection that all tasks share, with tokio.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::{Options, aio::LockClient};
//!
//! # async fn example() -> redis_lock_client::Result<()> {
//! let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
//!
//! let lock = locks.lock("stock:7").with_ttl(Duration::from_secs(10));
//! if let Some(guard) = lock.lock_timeout(Duration::from_secs(5)).await? {
//!     let keep_alive = guard.keep_alive();
//!     tokio::select! {
//!         () = work(guard.fence()) => {}
//!         () = guard.lost() => eprintln!("stop: the lock is lost"),
//!     }
//!     drop(keep_alive);
//!     guard.unlock().await?;
//! }
//! # Ok(())
//! # }
//! # async fn work(_: u64) {}
//! ```
//!
//! # Waiting
//!
//! A shared connection must not block, so a waiter asks with NOTIFY and hears of its grant on a
//! channel. One client has one connection that listens, whatever the number of waiting tasks. When
//! that connection is lost, each waiter asks again with its token: it gets its fence, or goes on at
//! its place.
//!
//! Where NOTIFY is not possible, up to [`Options::max_waiting_connections`] connections block in
//! the server. Tasks beyond that number ask again from time to time. [`Options::on_fallback`] is
//! told once.
//!
//! [`Options::max_waiting_connections`]: crate::Options::max_waiting_connections
//! [`Options::on_fallback`]: crate::Options::on_fallback
//!
//! # Cancellation, drops and the end
//!
//! Each future here can be dropped at any time. A dropped acquire gives up its place, and releases
//! what it may just have been granted, in a task of its own. A dropped [`Guard`] releases its lock in
//! the same way. At the end of `#[tokio::main]` such tasks are dropped before they have run, and the
//! lock stays for its ttl. So await [`Guard::unlock`], or [`LockClient::shutdown`] at the end.
//!
//! A client belongs to no runtime: each call uses the one that it is awaited in, and connections that
//! have ended with another one are made anew.

mod driver;
mod link;
mod listener;

use std::fmt;
use std::time::Duration;

use redis::{FromRedisValue, ToSingleRedisArg};

use crate::error::{Error, Result};

pub use driver::Tasks;

/// Makes locks. One client serves all tasks of a program, and a clone is the same client.
pub type LockClient = crate::locks::LockClient<Tasks>;
/// An exclusive lock. It holds nothing itself: what is held is the [`Guard`].
pub type Lock = crate::locks::Lock<Tasks>;
/// A reader-writer lock. It holds nothing itself: what is held is the [`Guard`].
pub type RwLock = crate::locks::RwLock<Tasks>;
/// A lock that a number of guards hold at a time.
pub type Semaphore = crate::locks::Semaphore<Tasks>;
/// Several locks as one.
pub type MultiLock = crate::locks::MultiLock<Tasks>;
/// A value that one of all callers makes.
pub type Once = crate::once::Once<Tasks>;
/// A hold on a lock. Dropping it releases the lock, in a task of its own.
pub type Guard = crate::guard::Guard<Tasks>;
/// Renews a hold in a task of its own until it is dropped. Its drop releases nothing.
pub type KeepAlive = crate::keeper::KeepAlive<Tasks>;

impl LockClient {
    /// Waits until all is released that dropped guards and futures have left, and closes the
    /// connections of the client. Call it at the end of `main`: a runtime that ends drops its tasks.
    ///
    /// What guards hold stays theirs. A client can be used after this, and connects again.
    pub async fn shutdown(&self) {
        self.engine.shutdown().await;
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
        self.run(key.as_ref(), (at_most, at_least), job).await
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
    /// This future can be dropped at any time. Then the next caller in the queue makes the value.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # use redis_lock_client::{Options, aio::LockClient};
    /// # use std::time::Duration;
    /// # async fn render(_: u32) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
    /// let page = locks.once("page:7").with_keep(Duration::from_secs(60));
    /// let html: String = page
    ///     .get_or_make(async |_| Ok::<_, Box<dyn std::error::Error>>(render(7).await?))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get_or_make<T, E>(
        &self,
        make: impl AsyncFnOnce(&Guard) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: ToSingleRedisArg + FromRedisValue,
        E: From<Error> + fmt::Debug,
    {
        self.value(make).await
    }
}

impl Guard {
    /// Waits until the hold is over. With [`Guard::keep_alive`] that is when it was lost.
    pub async fn lost(&self) {
        self.hold.lease.lost::<Tasks>(Duration::MAX).await;
    }
}

impl KeepAlive {
    /// Waits until the hold is over or released.
    pub async fn lost(&self) {
        self.lease.lost::<Tasks>(Duration::MAX).await;
    }
}
