//! What the blocking and the asynchronous client promise alike. Each test runs for both.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::duplicate_mod,
    unreachable_pub
)]

mod common;

use std::time::Duration;

use redis_lock_client::redis::{FromRedisValue, ToSingleRedisArg};
use redis_lock_client::{Options, Result, Sentinel};

#[path = "both"]
mod blocking {
    pub(crate) use redis_lock_client::sync as library;

    use super::*;

    mod holds;
    mod lease;
    mod result;
    mod rights;
    mod topologies;
    mod vectors;

    /// Whether it listens for its grants on a channel.
    pub(crate) const LISTENS: bool = false;

    /// Waits for what a call of the client begins.
    pub(crate) fn now<T>(done: T) -> T {
        done
    }

    pub(crate) fn open(url: String, options: Options) -> library::LockClient {
        library::LockClient::open(url, options).unwrap()
    }

    pub(crate) fn cluster(urls: Vec<String>, options: Options) -> library::LockClient {
        library::LockClient::cluster(urls, options).unwrap()
    }

    pub(crate) fn sentinel(sentinel: Sentinel, options: Options) -> library::LockClient {
        library::LockClient::sentinel(sentinel, options)
    }

    /// Whether it is told within a bound that a hold is over.
    pub(crate) fn is_told(kept: &library::KeepAlive) -> bool {
        kept.wait_lost(common::BOUND)
    }

    pub(crate) fn once<T>(
        locks: &library::LockClient,
        (key, most, least): (&str, u64, u64),
        job: impl FnOnce() -> T,
    ) -> Result<Option<T>> {
        locks.run_once(key, ms(most), ms(least), |_| job())
    }

    pub(crate) fn get<T: ToSingleRedisArg + FromRedisValue>(
        once: &library::Once,
        make: impl FnOnce(&library::Guard) -> Result<T>,
    ) -> Result<T> {
        once.get_or_make(make)
    }
}

#[path = "both"]
mod tasks {
    use std::sync::LazyLock;

    use tokio::runtime::Runtime;

    pub(crate) use redis_lock_client::aio as library;

    use super::*;

    mod holds;
    mod lease;
    mod result;
    mod rights;
    mod topologies;
    mod vectors;

    pub(crate) const LISTENS: bool = true;

    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

    pub(crate) fn now<F: Future>(done: F) -> F::Output {
        RUNTIME.block_on(done)
    }

    pub(crate) fn open(url: String, options: Options) -> library::LockClient {
        library::LockClient::open(url, options).unwrap()
    }

    pub(crate) fn cluster(urls: Vec<String>, options: Options) -> library::LockClient {
        library::LockClient::cluster(urls, options).unwrap()
    }

    pub(crate) fn sentinel(sentinel: Sentinel, options: Options) -> library::LockClient {
        library::LockClient::sentinel(sentinel, options)
    }

    pub(crate) fn is_told(kept: &library::KeepAlive) -> bool {
        now(async { tokio::time::timeout(common::BOUND, kept.lost()).await }).is_ok()
    }

    pub(crate) fn once<T>(
        locks: &library::LockClient,
        (key, most, least): (&str, u64, u64),
        job: impl FnOnce() -> T,
    ) -> Result<Option<T>> {
        now(locks.run_once(key, ms(most), ms(least), async |_| job()))
    }

    pub(crate) fn get<T: ToSingleRedisArg + FromRedisValue>(
        once: &library::Once,
        make: impl FnOnce(&library::Guard) -> Result<T>,
    ) -> Result<T> {
        now(once.get_or_make(async |guard| make(guard)))
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
