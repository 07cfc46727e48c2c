use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::{Mutex, Notify};

use super::link::{CONNECT_TIME, connect_to, within};
use crate::engine::rest_for_answer;
use crate::error::is_to_leave;

/// A connection that many tasks use at the same time, as redis-rs has several.
///
/// `MultiplexedConnection`, `ConnectionManager` and the cluster's `ClusterConnection` are.
pub trait SharedConnection: ConnectionLike + Clone + Send + Sync + 'static {}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> SharedConnection for C {}

pub(super) type Answer<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// Sends commands that are answered at once.
pub(super) trait Transport: Send + Sync {
    fn ask<'a>(&'a self, command: &'a Cmd, time: Duration) -> Answer<'a>;
}

/// The program's own connection, which reconnects by itself if it does at all. Who listens is told
/// when the next answer may come from another server.
pub(super) struct Borrowed<C>(pub(super) C, pub(super) Arc<Notify>);

impl<C: SharedConnection> Transport for Borrowed<C> {
    fn ask<'a>(&'a self, command: &'a Cmd, time: Duration) -> Answer<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move {
            let answer = within(time, connection.req_packed_command(command))
                .await
                .and_then(Value::extract_error);
            let has_left = |error: &RedisError| is_to_leave(error) && !error.is_timeout();
            if answer.as_ref().is_err_and(has_left) {
                self.1.notify_one();
            }
            answer
        })
    }
}

/// The server that connections are made to.
#[derive(Clone)]
pub(super) enum Source {
    Server(Client),
    /// The one that sentinels name at that moment.
    #[cfg(feature = "sentinel")]
    Primary(super::sentinel::Primary),
}

impl Source {
    pub(super) async fn client(&self) -> RedisResult<Client> {
        match self {
            Self::Server(client) => Ok(client.clone()),
            #[cfg(feature = "sentinel")]
            Self::Primary(primary) => primary.client().await,
        }
    }
}

/// A connection of the client's, made anew after a failure.
pub(super) struct Own {
    source: Source,
    current: Mutex<Current>,
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
    pub(super) fn new(source: Source, renewed: Option<Arc<Notify>>) -> Self {
        Self {
            source,
            current: Mutex::default(),
            has_failed: is_to_leave,
            renewed,
        }
    }

    /// A node of a cluster, which goes on after it has sent a command elsewhere.
    #[cfg(feature = "cluster-async")]
    pub(super) fn node(client: Client) -> Self {
        Self {
            has_failed: crate::error::is_unanswered,
            ..Self::new(Source::Server(client), None)
        }
    }

    /// Sends a command that the node answers although its slot has not arrived there yet.
    #[cfg(feature = "cluster-async")]
    pub(super) async fn ask_asking(&self, command: &Cmd, time: Duration) -> RedisResult<Value> {
        let start = Instant::now();
        let (mut connection, number) = self.connection(time).await?;
        let time = rest_for_answer(start, time);
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let answers = within(time, connection.req_packed_commands(&pipeline, 1, 1)).await;
        let answer = answers.map(|answers| answers.into_iter().next().unwrap_or(Value::Nil));
        self.forget_after(&answer, number).await;
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
        let connection = connect(&self.source).await?;
        current.number = current.number.wrapping_add(1);
        if std::mem::take(&mut current.has_left)
            && let Some(renewed) = &self.renewed
        {
            renewed.notify_one();
        }
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    async fn forget_after(&self, answer: &RedisResult<Value>, number: u64) {
        let Err(error) = answer else {
            return;
        };
        if !(self.has_failed)(error) {
            return;
        }
        let mut current = self.current.lock().await;
        if current.number == number {
            current.connection = None;
            current.has_left |= !error.is_timeout();
        }
    }
}

impl Transport for Own {
    fn ask<'a>(&'a self, command: &'a Cmd, time: Duration) -> Answer<'a> {
        Box::pin(async move {
            let start = Instant::now();
            let (mut connection, number) = self.connection(time).await?;
            let time = rest_for_answer(start, time);
            let answer = within(time, connection.req_packed_command(command))
                .await
                .and_then(Value::extract_error);
            self.forget_after(&answer, number).await;
            answer
        })
    }
}

/// Makes a connection whose answers may take as long as they like.
pub(super) async fn connect(source: &Source) -> RedisResult<MultiplexedConnection> {
    connect_to(&source.client().await?).await
}
