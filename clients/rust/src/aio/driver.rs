//! Connections that tasks share.

use std::future::Future;
use std::slice::from_ref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{timeout, timeout_at};

#[cfg(feature = "cluster-async")]
use super::cluster::Nodes;
use super::link::{Boxed, Own, Source, ask, within};
use super::listener::{Hub, Subscribed};
use crate::attempt::{Attempt, Verdict};
use crate::driver::{Driver, Engine};
use crate::lease::Lease;
use crate::locks::Returns;
use crate::options::Options;
use crate::replies::is_to_leave;

/// A connection that many tasks use at the same time, as redis-rs has several.
///
/// `MultiplexedConnection`, `ConnectionManager` and the cluster's `ClusterConnection` are.
pub trait SharedConnection: ConnectionLike + Clone + Send + Sync + 'static {}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for C {}

/// Marks what is awaited, as in [`Guard`](super::Guard).
#[derive(Clone, Copy, Debug)]
pub enum Tasks {}

impl Returns for Tasks {
    type Done<'a, T: 'a> = Boxed<'a, T>;
}

impl Driver for Tasks {
    type Connections = Connections;
    type Runtime = Handle;

    const BLOCKS: bool = false;

    /// Keeps the types of a program's own futures short, too.
    fn done<'a, T: 'a>(work: impl Future<Output = T> + Send + 'a) -> Boxed<'a, T> {
        Box::pin(work)
    }

    fn runtime() -> Option<Handle> {
        Handle::try_current().ok()
    }

    async fn send(engine: &Engine<Self>, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        boxed(engine.connections.send(commands, time)).await
    }

    async fn send_of_owner(
        engine: &Engine<Self>,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<Value> {
        match &engine.connections.owners {
            Some(own) => boxed(own.send(commands, time)).await,
            None => Self::send(engine, commands, time).await,
        }
    }

    async fn ask_next(engine: &Engine<Self>, attempt: &mut Attempt<'_>) -> Verdict {
        boxed(engine.ask_in_the_best_way(attempt)).await
    }

    async fn pause(time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn pause_of_keeper(
        lease: &Lease,
        until: Instant,
        time: Duration,
        is_stopped: &AtomicBool,
    ) {
        let _ = timeout(time, lease.shorter(until, is_stopped)).await;
    }

    async fn until<T: Send>(end: Instant, future: impl Future<Output = T> + Send) -> Option<T> {
        timeout_at(end.into(), future).await.ok()
    }

    /// It may block, which must not delay the renewals of other holds.
    fn tell(call: impl FnOnce() + Send + 'static) {
        drop(tokio::task::spawn_blocking(call));
    }

    fn keep(runtime: &Handle, keeper: impl Future<Output = ()> + Send + 'static) {
        drop(Self::here_or(runtime).spawn(keeper));
    }

    fn settle(
        engine: Arc<Engine<Self>>,
        runtime: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let left = Left::begin(engine);
        drop(Self::here_or(runtime).spawn(async move {
            work.await;
            drop(left);
        }));
    }
}

impl Tasks {
    /// The runtime of the acquire may be over, and there may be none here.
    fn here_or(runtime: &Handle) -> Handle {
        Self::runtime().unwrap_or_else(|| runtime.clone())
    }
}

/// Something that is left to be done, for which a shutdown waits. It is over too if its runtime is.
struct Left(Arc<Engine<Tasks>>);

impl Left {
    fn begin(engine: Arc<Engine<Tasks>>) -> Self {
        engine
            .connections
            .left
            .send_modify(|left| *left = left.saturating_add(1));
        Self(engine)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let left = &self.0.connections.left;
        left.send_modify(|left| *left = left.saturating_sub(1));
    }
}

/// All connections of a client.
pub(crate) struct Connections {
    to: To,
    /// Where the program could keep the others from answering.
    owners: Option<Own>,
    pub(super) hub: Arc<Hub>,
    /// As many connections may block at a time.
    pub(super) waiting: Semaphore,
    idle: Mutex<Vec<MultiplexedConnection>>,
    left: watch::Sender<usize>,
}

enum To {
    Own(Own),
    /// The program's own connection, which reconnects by itself if it does at all. Its server makes
    /// the connections that listen or block; without one a waiter asks again and again.
    Borrowed(Box<Borrowed>, Option<Source>),
    #[cfg(feature = "cluster-async")]
    Cluster(Box<Nodes>),
}

type Borrowed = dyn for<'a> Fn(&'a [Cmd]) -> Boxed<'a, RedisResult<Value>> + Send + Sync;

impl Connections {
    fn new(to: To, owners: Option<Own>, hub: Arc<Hub>, options: &Options) -> Self {
        let permits = options.max_waiting_connections.min(Semaphore::MAX_PERMITS);
        Self {
            to,
            owners,
            hub,
            waiting: Semaphore::new(permits),
            idle: Mutex::default(),
            left: watch::Sender::new(0),
        }
    }

    pub(super) fn own(source: Source, options: &Options) -> Self {
        let hub = Hub::new();
        let own = Own::new(source, Some(hub.clone()));
        Self::new(To::Own(own), None, hub, options)
    }

    pub(super) fn borrowed(
        connection: impl SharedConnection,
        source: Option<Source>,
        options: &Options,
    ) -> Self {
        let owners = source.clone().map(|source| Own::new(source, None));
        let ask: Box<Borrowed> = Box::new(move |commands| {
            let connection = connection.clone();
            Box::pin(ask(connection, commands))
        });
        Self::new(To::Borrowed(ask, source), owners, Hub::new(), options)
    }

    #[cfg(feature = "cluster-async")]
    pub(super) fn cluster(topology: crate::cluster::Topology, options: &Options) -> Self {
        let hub = Hub::new();
        let nodes = Box::new(Nodes::new(topology, hub.clone()));
        Self::new(To::Cluster(nodes), None, hub, options)
    }

    /// Where connections that listen or block are made.
    pub(super) fn source(&self) -> Option<&Source> {
        match &self.to {
            To::Own(own) => Some(&own.source),
            To::Borrowed(_, source) => source.as_ref(),
            #[cfg(feature = "cluster-async")]
            To::Cluster(_) => None,
        }
    }

    /// Whether it listens to the nodes of a cluster. There, a grant that was heard is only a hint,
    /// which the next request confirms: a node that was the primary hears what the primary publishes.
    pub(super) fn is_cluster(&self) -> bool {
        !matches!(self.to, To::Own(_) | To::Borrowed(..))
    }

    /// Sends commands that are answered at once.
    async fn send(&self, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        match &self.to {
            To::Own(own) => own.send(commands, time).await,
            To::Borrowed(ask, _) => {
                let answer = within(time, ask(commands)).await;
                let has_left = |error: &RedisError| is_to_leave(error) && !error.is_timeout();
                if answer.as_ref().is_err_and(has_left) {
                    self.hub.connect_anew(&None);
                }
                answer
            }
            #[cfg(feature = "cluster-async")]
            To::Cluster(nodes) => nodes.send(commands, time).await.map(|(answer, _)| answer),
        }
    }

    /// Sends a request whose end the channel hears. Whether the server that answers is the one that
    /// is listened to.
    pub(super) async fn send_heard(
        &self,
        command: &Cmd,
        time: Duration,
        #[cfg_attr(not(feature = "cluster-async"), allow(unused_variables))]
        subscribed: &Subscribed,
    ) -> RedisResult<(Value, bool)> {
        match &self.to {
            #[cfg(feature = "cluster-async")]
            To::Cluster(nodes) => {
                let (answer, node) = nodes.send(from_ref(command), time).await?;
                Ok((answer, subscribed.node == Some(node)))
            }
            _ => Ok((self.send(from_ref(command), time).await?, true)),
        }
    }

    /// Listens for a key, unless it does.
    pub(super) async fn listen(
        &self,
        #[cfg_attr(not(feature = "cluster-async"), allow(unused_variables))] key: &[u8],
        time: Duration,
    ) -> RedisResult<Subscribed> {
        #[cfg(feature = "cluster-async")]
        if let To::Cluster(nodes) = &self.to {
            return nodes.listen(key, time).await;
        }
        match self.source() {
            Some(source) => self.hub.ready(None, None, source, time).await,
            None => Err((redis::ErrorKind::Client, "nothing listens").into()),
        }
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn shutdown(&self) {
        let _ = self.left.subscribe().wait_for(|left| *left == 0).await;
        self.hub.close();
        self.idle().clear();
        match &self.to {
            To::Own(own) => own.close().await,
            To::Borrowed(..) => {}
            #[cfg(feature = "cluster-async")]
            To::Cluster(nodes) => nodes.close().await,
        }
        if let Some(own) = &self.owners {
            own.close().await;
        }
    }
}

/// Keeps the types of futures short: a program's own are made of them, and rustc has a limit.
fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Boxed<'a, T> {
    Box::pin(future)
}
