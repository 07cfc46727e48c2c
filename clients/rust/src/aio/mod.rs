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
//! # Cancellation
//!
//! Each future here can be dropped at any time. A dropped acquire gives up its place, and releases
//! what it may just have been granted, in a task of its own. A dropped [`Guard`] releases its lock
//! in the same way, so the runtime must live on for a moment. [`Guard::unlock`] waits for the
//! answer.

mod acquire;
mod client;
#[cfg(feature = "cluster-async")]
mod cluster;
mod ear;
mod guard;
mod hub;
mod inner;
mod keep_alive;
mod link;
#[cfg(feature = "sentinel")]
mod sentinel;
mod settle;
#[cfg(feature = "cluster-async")]
mod shards;
mod transport;

pub use client::{Lock, LockClient, MultiLock, RwLock, Semaphore};
pub use guard::Guard;
pub use keep_alive::KeepAlive;
pub use transport::SharedConnection;

#[cfg(doc)]
use crate::Options;
