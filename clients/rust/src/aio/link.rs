//! How connections are made, and made anew.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::listener::Hub;
use crate::driver::{answered, rest_for_answer};
use crate::replies::is_to_leave;

/// The time for a new connection. A server that is there accepts at once.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The server that connections are made to: always the same, or the one that sentinels name at that
/// moment.
#[derive(Clone)]
pub(super) struct Source(Arc<dyn Fn() -> Boxed<'static, RedisResult<Client>> + Send + Sync>);

impl Source {
    pub(super) fn new<F: Future<Output = RedisResult<Client>> + Send + 'static>(
        find: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || Box::pin(find())))
    }

    pub(super) async fn client(&self) -> RedisResult<Client> {
        (self.0)().await
    }

    /// Makes a connection whose answers may take as long as they like.
    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        connect_to(&self.client().await?).await
    }
}

impl From<Client> for Source {
    fn from(client: Client) -> Self {
        Self::new(move || std::future::ready(Ok(client.clone())))
    }
}

/// A connection of the client's, made anew after a failure.
pub(super) struct Own {
    pub(super) source: Source,
    current: Mutex<Current>,
    /// Whether to make another connection after this error.
    has_failed: fn(&RedisError) -> bool,
    /// Is told when a connection takes the place of one that was refused or cut, as it may be to
    /// another server. A busy server is only late: those that wait must not all ask it again.
    hub: Option<Arc<Hub>>,
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
    pub(super) fn new(source: Source, hub: Option<Arc<Hub>>) -> Self {
        Self {
            source,
            current: Mutex::default(),
            has_failed: is_to_leave,
            hub,
        }
    }

    /// A node of a cluster, which goes on after it has sent a command elsewhere.
    pub(super) fn node(client: Client) -> Self {
        Self {
            has_failed: crate::replies::is_unanswered,
            ..Self::new(client.into(), None)
        }
    }

    pub(super) async fn send(&self, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        let start = Instant::now();
        let (connection, number) = self.connection(time).await?;
        let time = rest_for_answer(start, time);
        let answer = within(time, ask(connection, commands)).await;
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
        let connecting = async {
            // One task connects, and the others wait for it.
            let mut current = self.current.lock().await;
            if let Some(connection) = &current.connection {
                return Ok((connection.clone(), current.number));
            }
            let connection = self.source.connect().await?;
            current.number = current.number.wrapping_add(1);
            if std::mem::take(&mut current.has_left)
                && let Some(hub) = &self.hub
            {
                hub.connect_anew(&None);
            }
            current.connection = Some(connection.clone());
            Ok((connection, current.number))
        };
        within(time.clamp(Duration::from_secs(1), CONNECT_TIME), connecting).await
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

/// Sends commands together. The answer is that of `answered`.
pub(super) async fn ask(
    mut connection: impl ConnectionLike,
    commands: &[Cmd],
) -> RedisResult<Value> {
    let answers = match commands {
        [command] => vec![connection.req_packed_command(command).await?],
        commands => {
            let mut pipeline = Pipeline::with_capacity(commands.len());
            for command in commands {
                pipeline.add_command(command.clone());
            }
            let asking = connection.req_packed_commands(&pipeline, 0, commands.len());
            asking.await?
        }
    };
    answered(answers)
}

/// An error of the connection if `time` passes first.
pub(super) async fn within<T>(
    time: Duration,
    future: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match timeout(time, future).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}
