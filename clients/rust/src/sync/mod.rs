//! Locks over blocking connections.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::{Options, sync::LockClient};
//!
//! # fn main() -> redis_lock_client::Result<()> {
//! let locks = LockClient::open("redis://127.0.0.1:6379", Options::default())?;
//!
//! let lock = locks.lock("stock:7").with_ttl(Duration::from_secs(10));
//! if let Some(guard) = lock.lock_timeout(Duration::from_secs(5))? {
//!     let keep_alive = guard.keep_alive();
//!     while work_is_left() && !guard.is_lost() {
//!         work(guard.fence());
//!     }
//!     drop(keep_alive);
//!     guard.unlock()?;
//! }
//!
//! let page = locks.rwlock("page:7");
//! let reader = page.read()?; // any number at once; a waiting writer goes first
//! drop(reader); // releases, too, but cannot say if the hold was lost
//! # Ok(())
//! # }
//! # fn work_is_left() -> bool { false }
//! # fn work(_: u64) {}
//! ```
//!
//! # Waiting
//!
//! Each thread that waits has a connection of its own, which blocks in the server for one slice at
//! a time. The token, and with it the place in the queue, is the same for all slices and
//! connections. A client that gives up releases its place.

mod client;
#[cfg(feature = "cluster")]
mod cluster;
mod connect;
mod guard;
mod inner;
mod keep_alive;
#[cfg(feature = "sentinel")]
mod sentinel;

pub use client::{Lock, LockClient, MultiLock, RwLock, Semaphore};
pub use connect::{Connect, Connection};
pub use guard::Guard;
pub use keep_alive::KeepAlive;

#[cfg(doc)]
use crate::Options;
