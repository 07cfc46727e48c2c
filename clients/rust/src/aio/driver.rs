//! Connections that tasks share.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, IntoConnectionInfo, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::cluster::Nodes;
use super::link::{Boxed, Origin, Own, Source, shared};
use super::listener::{Hub, Node, Subscribed};
use crate::attempt::{Attempt, Verdict};
use crate::driver::{Driver, Engine, Peer, locked};
use crate::error::Result;
use crate::locks::Returns;
use crate::options::Options;

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

    async fn within<T: Send>(time: Duration, future: impl Future<Output = T> + Send) -> Option<T> {
        timeout(time, future).await.ok()
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
        let left = engine.connections.left.subscribe();
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
    pub(super) idle: Mutex<Vec<Own>>,
    left: watch::Sender<()>,
}

enum To {
    /// A server, by a connection of the client's or of the program's.
    One(Own),
    Cluster(Box<Nodes>),
}

impl Connections {
    fn new(to: To, source: Option<Source>, hub: Arc<Hub>, options: &Options) -> Self {
        let permits = options.max_waiting_connections.min(Semaphore::MAX_PERMITS);
        Self {
            to,
            source,
            owners: None,
            hub,
            waiting: Semaphore::new(permits),
            idle: Mutex::default(),
            left: watch::Sender::new(()),
        }
    }

    pub(super) fn own(source: Source, options: &Options) -> Self {
        let hub = Hub::new();
        let server = Origin::Server(source.clone());
        let own = Own::new(server, Some(hub.clone()));
        Self::new(To::One(own), Some(source), hub, options)
    }

    /// Without a source a waiter asks again and again.
    pub(super) fn borrowed(
        connection: impl SharedConnection,
        source: Option<Source>,
        options: &Options,
    ) -> Self {
        let hub = Hub::new();
        let program = Origin::Program(shared(connection));
        let own = Own::new(program, Some(hub.clone()));
        let owners = source.clone().map(Origin::Server);
        let owners = owners.map(|origin| Own::new(origin, None));
        Self {
            owners,
            ..Self::new(To::One(own), source, hub, options)
        }
    }

    pub(super) fn cluster<A: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = A>,
        options: &Options,
    ) -> Result<Self> {
        let hub = Hub::new();
        let nodes = Box::new(Nodes::new(nodes, hub.clone())?);
        Ok(Self::new(To::Cluster(nodes), None, hub, options))
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
        match &self.to {
            To::One(own) => Ok((own.send(commands, time).await?, None)),
            To::Cluster(nodes) => {
                let (answer, node) = nodes.send(commands, time).await?;
                Ok((answer, Some(node)))
            }
        }
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
        self.left.closed().await;
        self.hub.close();
        locked(&self.idle).clear();
        match &self.to {
            To::One(own) => own.close().await,
            To::Cluster(nodes) => nodes.cluster.close(),
        }
        if let Some(own) = &self.owners {
            own.close().await;
        }
    }
}
