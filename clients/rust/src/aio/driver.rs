//! Connections that tasks share.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, watch};
use tokio::time::{timeout, timeout_at};

#[cfg(feature = "cluster-async")]
use super::cluster::Nodes;
use crate::acquire::{Attempt, Turn, Verdict};
use crate::driver::{Driver, Engine, rest_for_answer};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::listener::{Hub, Subscribed};
use crate::replies::is_to_leave;

/// The time for a new connection. A server that is there accepts at once.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// A connection that many tasks use at the same time, as redis-rs has several.
///
/// `MultiplexedConnection`, `ConnectionManager` and the cluster's `ClusterConnection` are.
pub trait SharedConnection: ConnectionLike + Clone + Send + Sync + 'static {}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for C {}

/// Marks what is awaited, as in [`Guard`](super::Guard).
#[derive(Clone, Copy, Debug)]
pub enum Tasks {}

impl Driver for Tasks {
    type Connections = Connections;
    type Runtime = Option<Handle>;

    const BLOCKS: bool = false;

    fn runtime() -> Option<Handle> {
        Handle::try_current().ok()
    }

    fn is_ready() -> bool {
        Self::runtime().is_some()
    }

    async fn send(engine: &Engine<Self>, command: &Cmd, time: Duration) -> RedisResult<Value> {
        boxed(engine.connections.send(command, time)).await
    }

    async fn send_of_owner(
        engine: &Engine<Self>,
        command: &Cmd,
        time: Duration,
    ) -> RedisResult<Value> {
        match &engine.connections.owners {
            Some(own) => boxed(own.send(command, time)).await,
            None => Self::send(engine, command, time).await,
        }
    }

    async fn ask_next(engine: &Engine<Self>, attempt: &mut Attempt<'_>, turn: Turn) -> Verdict {
        boxed(engine.ask_in_the_best_way(attempt, turn)).await
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

    fn keep(keeper: Keeper<Self>) {
        match Self::runtime().or(keeper.hold.runtime.clone()) {
            Some(runtime) => drop(runtime.spawn(keeper.run())),
            None => tracing::error!("nothing renews a lock, because there is no runtime here"),
        }
    }

    fn settle(
        engine: Arc<Engine<Self>>,
        runtime: &Option<Handle>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        // The one of the guard may be over, and there may be none here.
        let Some(runtime) = Self::runtime().or(runtime.clone()) else {
            return tracing::warn!("a lock stays for its ttl, because there is no runtime here");
        };
        let left = Left::begin(engine);
        runtime.spawn(async move {
            work.await;
            drop(left);
        });
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
    pub(crate) hub: Arc<Hub>,
    /// As many connections may block at a time.
    waiting: OnceLock<Semaphore>,
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

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Borrowed = dyn for<'a> Fn(&'a Cmd) -> Boxed<'a, RedisResult<Value>> + Send + Sync;

impl Connections {
    fn new(to: To, owners: Option<Own>, hub: Arc<Hub>) -> Self {
        Self {
            to,
            owners,
            hub,
            waiting: OnceLock::new(),
            idle: Mutex::default(),
            left: watch::Sender::new(0),
        }
    }

    pub(super) fn own(source: Source) -> Self {
        let hub = Hub::new();
        Self::new(
            To::Own(Own::new(source, Some(hub.renewed.clone()))),
            None,
            hub,
        )
    }

    pub(super) fn borrowed(connection: impl SharedConnection, source: Option<Source>) -> Self {
        let owners = source.clone().map(|source| Own::new(source, None));
        let ask: Box<Borrowed> = Box::new(move |command| {
            let mut connection = connection.clone();
            Box::pin(async move { connection.req_packed_command(command).await })
        });
        Self::new(To::Borrowed(ask, source), owners, Hub::new())
    }

    #[cfg(feature = "cluster-async")]
    pub(super) fn cluster(topology: crate::cluster::Topology) -> Self {
        let hub = Hub::new();
        Self::new(To::Cluster(Box::new(Nodes::new(topology, &hub))), None, hub)
    }

    pub(super) fn permit(&self, connections: usize) {
        let permits = connections.min(Semaphore::MAX_PERMITS);
        self.waiting.get_or_init(|| Semaphore::new(permits));
    }

    pub(super) fn waiting(&self) -> &Semaphore {
        self.waiting.get_or_init(|| Semaphore::new(1))
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

    /// Sends a command that is answered at once.
    async fn send(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        match &self.to {
            To::Own(own) => own.send(command, time).await,
            To::Borrowed(ask, _) => {
                let answer = within(time, ask(command)).await;
                let answer = answer.and_then(Value::extract_error);
                let has_left = |error: &RedisError| is_to_leave(error) && !error.is_timeout();
                if answer.as_ref().is_err_and(has_left) {
                    self.hub.renewed.notify_one();
                }
                answer
            }
            #[cfg(feature = "cluster-async")]
            To::Cluster(nodes) => nodes.send(command, time).await.map(|(answer, _)| answer),
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
                let (answer, node) = nodes.send(command, time).await?;
                Ok((answer, subscribed.node == Some(node)))
            }
            _ => Ok((self.send(command, time).await?, true)),
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
            return nodes.ready(key, time).await;
        }
        match self.source() {
            Some(source) => self.hub.ready(source, time).await,
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

/// The server that connections are made to.
#[derive(Clone)]
pub(crate) enum Source {
    Server(Client),
    /// The one that sentinels name at that moment.
    #[cfg(feature = "sentinel")]
    Primary(super::sentinel::Primary),
}

impl Source {
    pub(crate) async fn client(&self) -> RedisResult<Client> {
        match self {
            Self::Server(client) => Ok(client.clone()),
            #[cfg(feature = "sentinel")]
            Self::Primary(primary) => primary.client().await,
        }
    }

    /// Makes a connection whose answers may take as long as they like.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        connect_to(&self.client().await?).await
    }
}

/// A connection of the client's, made anew after a failure.
pub(super) struct Own {
    source: Source,
    current: AsyncMutex<Current>,
    /// Whether to make another connection after this error.
    has_failed: fn(&RedisError) -> bool,
    /// Is told when a connection takes the place of one that was refused or cut, as it may be to
    /// another server. A busy server is only late: those that wait must not all ask it again.
    renewed: Option<Arc<Notify>>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    number: u64,
    /// The one before was refused or cut.
    has_left: bool,
}

impl Own {
    /// A server that is no longer primary is not asked again: a new connection asks who is.
    fn new(source: Source, renewed: Option<Arc<Notify>>) -> Self {
        Self {
            source,
            current: AsyncMutex::default(),
            has_failed: is_to_leave,
            renewed,
        }
    }

    /// A node of a cluster, which goes on after it has sent a command elsewhere.
    #[cfg(feature = "cluster-async")]
    pub(super) fn node(client: Client) -> Self {
        Self {
            has_failed: crate::replies::is_unanswered,
            ..Self::new(Source::Server(client), None)
        }
    }

    pub(super) async fn send(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        self.answered(time, async |mut connection| {
            connection.req_packed_command(command).await
        })
        .await
    }

    /// Sends a command that the node answers although its slot has not arrived there yet.
    #[cfg(feature = "cluster-async")]
    pub(super) async fn send_asking(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let pipeline = &pipeline;
        self.answered(time, async |mut connection| {
            let answers = connection.req_packed_commands(pipeline, 1, 1).await?;
            Ok(answers.into_iter().next().unwrap_or(Value::Nil))
        })
        .await
    }

    async fn answered(
        &self,
        time: Duration,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> RedisResult<Value>,
    ) -> RedisResult<Value> {
        let start = Instant::now();
        let (connection, number) = self.connection(time).await?;
        let time = rest_for_answer(start, time);
        let answer = within(time, ask(connection)).await;
        let answer = answer.and_then(Value::extract_error);
        if let Err(error) = &answer
            && (self.has_failed)(error)
        {
            let mut current = self.current.lock().await;
            if current.number == number {
                current.connection = None;
                current.has_left |= !error.is_timeout();
            }
        }
        answer
    }

    /// The present connection, or a new one. A short time for an answer leaves a second for that.
    async fn connection(&self, time: Duration) -> RedisResult<(MultiplexedConnection, u64)> {
        let time = time.clamp(Duration::from_secs(1), CONNECT_TIME);
        within(time, self.current_or_new()).await
    }

    async fn current_or_new(&self) -> RedisResult<(MultiplexedConnection, u64)> {
        // One task connects, and the others wait for it.
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.number));
        }
        let connection = self.source.connect().await?;
        current.number = current.number.wrapping_add(1);
        if std::mem::take(&mut current.has_left)
            && let Some(renewed) = &self.renewed
        {
            renewed.notify_one();
        }
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    pub(super) async fn close(&self) {
        self.current.lock().await.connection = None;
    }
}

/// Makes a connection whose answers may take as long as they like.
pub(super) async fn connect_to(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIME))
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    within(CONNECT_TIME, connecting).await
}

/// Keeps the types of futures short: a program's own are made of them, and rustc has a limit.
fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Boxed<'a, T> {
    Box::pin(future)
}

/// An error of the connection if `time` passes first.
pub(crate) async fn within<T>(
    time: Duration,
    future: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match timeout(time, future).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}
