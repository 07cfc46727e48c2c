//! Locks on the [redis-lock](https://github.com/redis-lock/redis-lock) module for Redis and Valkey
//! servers.
//!
//! The server decides who holds a lock, who waits, and who is next. So a waiter keeps its place in
//! one queue, nobody polls, and every hold has a fence that a resource can check.
//!
//! | feature | module | connection |
//! | --- | --- | --- |
//! | `sync` (default) | [`sync`] | blocking, one for each thread that waits |
//! | `tokio` | [`aio`] | one shared by all tasks, and one that hears of grants |
//!
//! Both modules have the same types: `LockClient`, `Lock`, `RwLock`, `Semaphore`, `MultiLock`, `Once`
//! and `Guard`.
//!
//! ```no_run
//! # #[cfg(feature = "sync")]
//! # fn main() -> redis_lock_client::Result<()> {
//! use redis_lock_client::{Options, sync::LockClient};
//!
//! let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
//! let guard = locks.lock("jobs:42").lock()?; // waits in the server's queue
//! println!("write with fence {}", guard.fence());
//! guard.unlock()?; // an error if the lock was lost meanwhile
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sync"))]
//! # fn main() {}
//! ```
//!
//! # What a guard promises
//!
//! A hold ends at its deadline, whatever this process believes. [`Options::ttl`] says how long that
//! is, and `keep_alive` renews it. The guard counts the lease by the monotonic clock from before
//! the command was sent, so it ends here before it ends in the server. A process can still be
//! stopped between a check and a write. So send `fence()` with every write, and let the resource
//! refuse a smaller one.
//!
//! # Lost connections
//!
//! Every command carries the token of its owner, so a command whose reply was lost is sent again.
//! If the lock was granted, the answer is the same fence. Commands are sent again for
//! [`Options::reconnect`].
// What the API is generic over cannot be named outside.
#![allow(private_bounds, private_interfaces)]
// Each way of waiting is used by one of the two.
#![cfg_attr(not(all(feature = "sync", feature = "tokio")), allow(dead_code))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

#[cfg(not(any(feature = "sync", feature = "tokio")))]
compile_error!("one of the features `sync` and `tokio` is needed");

mod acquire;
#[cfg(feature = "tokio")]
pub mod aio;
mod cluster;
mod command;
mod driver;
mod error;
pub mod guard;
mod hold;
pub mod keeper;
mod lease;
pub mod locks;
pub mod once;
mod options;
mod replies;
mod sentinel;
mod server;
#[cfg(feature = "sync")]
pub mod sync;

pub use error::{Error, Result};
pub use options::{LostLock, Options};
/// The client that this crate uses, so that both agree on the version.
pub use redis;
pub use sentinel::Sentinel;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// As one of a number of permits.
    Counted,
}
