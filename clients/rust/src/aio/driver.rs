//! Connections that tasks share.

use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{timeout, timeout_at};

use super::cluster::Nodes;
use super::link::{Boxed, Own, Source, ask, within};
use super::listener::{Hub, Node, Subscribed};
use crate::attempt::{Attempt, Verdict};
use crate::cluster::Topology;
use crate::driver::{Driver, Engine, locked};
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
        let sent = engine.connections.send(commands, time).await;
        sent.map(|(answer, _)| answer)
    }

    async fn send_of_owner(
        engine: &Engine<Self>,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<Value> {
        match &engine.connections.owners {
            Some(own) => own.send(commands, time).await,
            None => Self::send(engine, commands, time).await,
        }
    }

    async fn ask_next(engine: &Engine<Self>, attempt: &mut Attempt<'_>) -> Verdict {
        engine.ask_in_the_best_way(attempt).await
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
        let left = &engine.connections.left;
        left.send_modify(|left| *left = left.saturating_add(1));
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
    /// Where connections that listen or block are made, unless it is a cluster.
    pub(super) source: Option<Source>,
    /// Where the program could keep the others from answering.
    owners: Option<Own>,
    pub(super) hub: Arc<Hub>,
    /// As many connections may block at a time.
    pub(super) waiting: Semaphore,
    pub(super) idle: Mutex<Vec<MultiplexedConnection>>,
    left: watch::Sender<usize>,
}

enum To {
    Own(Own),
    /// The program's own connection, which reconnects by itself if it does at all. Without a source
    /// a waiter asks again and again.
    Borrowed(Box<Borrowed>),
    Cluster(Box<Nodes>),
}

type Borrowed = dyn for<'a> Fn(&'a [Cmd]) -> Boxed<'a, RedisResult<Value>> + Send + Sync;

impl Connections {
    fn new(to: To, source: Option<Source>, hub: Arc<Hub>, options: &Options) -> Self {
        let permits = options.max_waiting_connections.min(Semaphore::MAX_PERMITS);
        let owners = match to {
            To::Borrowed(_) => source.clone(),
            _ => None,
        };
        Self {
            to,
            source,
            owners: owners.map(|source| Own::new(source, None)),
            hub,
            waiting: Semaphore::new(permits),
            idle: Mutex::default(),
            left: watch::Sender::new(0),
        }
    }

    pub(super) fn own(source: Source, options: &Options) -> Self {
        let hub = Hub::new();
        let own = Own::new(source.clone(), Some(hub.clone()));
        Self::new(To::Own(own), Some(source), hub, options)
    }

    pub(super) fn borrowed(
        connection: impl SharedConnection,
        source: Option<Source>,
        options: &Options,
    ) -> Self {
        let ask: Box<Borrowed> =
            Box::new(move |commands| Box::pin(ask(connection.clone(), commands)));
        Self::new(To::Borrowed(ask), source, Hub::new(), options)
    }

    pub(super) fn cluster(topology: Topology, options: &Options) -> Self {
        let hub = Hub::new();
        let nodes = Box::new(Nodes::new(topology, hub.clone()));
        Self::new(To::Cluster(nodes), None, hub, options)
    }

    /// Whether it can hear of grants.
    pub(super) fn hears(&self) -> bool {
        self.source.is_some() || matches!(self.to, To::Cluster(_))
    }

    /// Sends commands that are answered at once. Returns the node that has answered, too.
    pub(super) async fn send(
        &self,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<(Value, Node)> {
        let answer = match &self.to {
            To::Own(own) => own.send(commands, time).await,
            To::Borrowed(ask) => within(time, ask(commands)).await.inspect_err(|error| {
                if is_to_leave(error) && !error.is_timeout() {
                    self.hub.connect_anew(&None);
                }
            }),
            To::Cluster(nodes) => {
                let (answer, node) = nodes.send(commands, time).await?;
                return Ok((answer, Some(node)));
            }
        };
        answer.map(|answer| (answer, None))
    }

    /// Listens for a key, unless it does.
    pub(super) async fn listen(&self, key: &[u8], time: Duration) -> RedisResult<Subscribed> {
        match (&self.to, &self.source) {
            (To::Cluster(nodes), _) => nodes.listen(key, time).await,
            (_, Some(source)) => self.hub.ready(None, None, source, time).await,
            (_, None) => Err((redis::ErrorKind::Client, "nothing listens").into()),
        }
    }

    pub(super) async fn shutdown(&self) {
        let _ = self.left.subscribe().wait_for(|left| *left == 0).await;
        self.hub.close();
        locked(&self.idle).clear();
        match &self.to {
            To::Own(own) => own.close().await,
            To::Borrowed(_) => {}
            To::Cluster(nodes) => nodes.close().await,
        }
        if let Some(own) = &self.owners {
            own.close().await;
        }
    }
}
