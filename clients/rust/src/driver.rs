//! The only place that knows a library: how commands are sent, and how time passes.
//!
//! All that is above it awaits a `Driver`. That of `sync` blocks where it is polled, so its futures
//! end when they are polled.

use std::future::{Future, pending};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use redis::{RedisError, RedisResult, Value};

use crate::Mode;
use crate::acquire::{Attempt, Verdict};
use crate::command::Claim;
use crate::error::{Error, Result};
use crate::locks::Returns;
use crate::options::Options;
use crate::server::{Address, Batch, Boxed, Servers, Source};

/// The connections of a client.
pub(crate) trait Driver:
    Returns + Copy + fmt::Debug + Send + Sync + Sized + 'static
{
    /// Connections to one server.
    type Peer: Send + Sync;
    /// Shared by all peers of a client.
    type Hub: Clone + Send + Sync;
    /// What work in the background needs, as a call of the client finds it.
    type Runtime: Clone + Send + Sync;

    /// Whether what a drop leaves is done before the drop is over.
    const BLOCKS: bool;

    fn done<'a, T: 'a>(work: impl Future<Output = T> + Send + 'a) -> Self::Done<'a, T>;

    /// An error where futures cannot be awaited.
    fn runtime() -> Result<Self::Runtime>;

    fn hub(options: &Options) -> Self::Hub;

    /// Tells a hub when its server may be another one.
    fn peer(source: Source, hub: Option<Self::Hub>) -> Self::Peer;

    /// Sends commands that are answered at once. The answer is that of `answered`.
    fn send<'a>(peer: &'a Self::Peer, batch: Batch<'a>) -> Boxed<'a, RedisResult<Value>>;

    /// One task asks for a cluster's slots, and the others wait for it. Threads do not: nothing would end
    /// their wait while the nodes are silent.
    fn turn(_hub: &Self::Hub) -> impl Future<Output: Send> + Send {
        async {}
    }

    /// Is told of the failure of a cluster's node.
    fn has_failed(_hub: &Self::Hub, _node: &Address, _error: &RedisError) {}

    /// Makes the next request of an attempt, in the best way to wait that there is.
    fn ask_next(
        engine: &Engine<Self>,
        attempt: &mut Attempt<'_>,
    ) -> impl Future<Output = Verdict> + Send;

    /// What a future comes to, or `None` if it does not come to it in time.
    fn within<T: Send>(
        time: Duration,
        future: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Option<T>> + Send;

    /// An error of the connection if the time passes first. In `sync` each answer has its own.
    fn in_time<T: Send>(
        time: Duration,
        work: impl Future<Output = RedisResult<T>> + Send,
    ) -> impl Future<Output = RedisResult<T>> + Send {
        let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        async move { Self::within(time, work).await.unwrap_or_else(late) }
    }

    fn pause(time: Duration) -> impl Future<Output = ()> + Send {
        async move {
            Self::within(time, pending::<()>()).await;
        }
    }

    /// Calls back where that delays nothing else.
    fn tell(call: impl FnOnce() + Send + 'static) {
        call();
    }

    /// Runs a keeper beside the program.
    fn keep(runtime: &Self::Runtime, keeper: Boxed<'static, ()>);

    /// Does what is left after a drop.
    fn settle(engine: &Engine<Self>, runtime: &Self::Runtime, work: Boxed<'static, ()>);
}

/// What all clones of a client share.
pub(crate) struct Engine<D: Driver> {
    pub(crate) servers: Servers<D>,
    pub(crate) hub: D::Hub,
    pub(crate) options: Options,
    pub(crate) support: Support,
}

impl<D: Driver> Engine<D> {
    /// Sends commands as `Driver::send` does.
    pub(crate) async fn send(&self, batch: Batch<'_>) -> RedisResult<Value> {
        self.servers.send(batch).await.0
    }

    /// How long holds outlive their connections, if they end with them.
    pub(crate) fn linger(&self) -> Option<Duration> {
        self.options.linger.filter(|_| !self.support.is_fallback())
    }
}

impl<D: Driver> fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// Does when it is dropped what a future has left to do.
pub(crate) struct Leftover<F: FnOnce()>(pub(crate) Option<F>);

impl<F: FnOnce()> Leftover<F> {
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Leftover<F> {
    fn drop(&mut self) {
        if let Some(settle) = self.0.take() {
            settle();
        }
    }
}

/// What no panic leaves half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ways of waiting that the server has refused. All are tried until then.
#[derive(Debug, Default)]
pub(crate) struct Support {
    /// Chosen once, by the first answer: whether the server has no module, and the options allow to do
    /// without.
    is_fallback: OnceLock<bool>,
    without_notify: OnceLock<()>,
}

impl Support {
    pub(crate) fn is_fallback(&self) -> bool {
        self.is_fallback.get() == Some(&true)
    }

    pub(crate) fn has_module(&self) {
        let _ = self.is_fallback.set(false);
    }

    /// Whether to go on without the module, which the server does not have. Says so once.
    pub(crate) fn falls_back(&self, options: &Options) -> bool {
        if options.fallback && self.is_fallback.set(true).is_ok() {
            say(
                options,
                "the server has no redis-lock module, so locks are taken by SET NX and Lua: there is no \
                 fair queue, no fence, no readers-writers, no counted or several locks, no guarded \
                 commands, no linger, and an eviction or a failover can end a hold early",
            );
        }
        self.is_fallback()
    }

    /// An error if the fallback has no such claim, or no release that waits for a time.
    pub(crate) fn refuse(&self, claim: &Claim, at_least: Option<Duration>) -> Result<()> {
        let what = match claim {
            _ if !self.is_fallback() => return Ok(()),
            _ if at_least.is_some() => "a least time",
            Claim::Lock | Claim::RwLock(Mode::Exclusive) => return Ok(()),
            Claim::RwLock(_) => "a share",
            Claim::Permit(_) => "a permit",
            Claim::All(_) => "a lock of several keys",
            Claim::Once(..) => "a result that is made once",
        };
        Err(Error::not_in_fallback(what))
    }

    pub(crate) fn notify(&self) -> bool {
        self.without_notify.get().is_none()
    }

    /// Remembers that NOTIFY is refused to this user or on this server, and says so once.
    pub(crate) fn is_without_notify(&self, options: &Options, why: &RedisError) {
        if self.without_notify.set(()).is_ok() {
            let text = format!("waiting by NOTIFY is not possible, so connections wait: {why}");
            say(options, &text);
        }
    }
}

fn say(options: &Options, text: &str) {
    tracing::warn!("{text}");
    if let Some(on_fallback) = &options.on_fallback {
        (on_fallback.0)(text);
    }
}
