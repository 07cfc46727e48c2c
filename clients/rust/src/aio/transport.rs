use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::error::may_pass;

/// The time for a new connection. A server that is there accepts at once.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

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

/// The program's own connection, which reconnects by itself if it does at all.
pub(super) struct Borrowed<C>(pub(super) C);

impl<C: SharedConnection> Transport for Borrowed<C> {
    fn ask<'a>(&'a self, command: &'a Cmd, time: Duration) -> Answer<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move { within(time, connection.req_packed_command(command)).await })
    }
}

/// A connection of the client's, made anew after a failure.
pub(super) struct Own {
    client: Client,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    number: u64,
}

impl Own {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            current: Mutex::default(),
        }
    }

    async fn connection(&self) -> RedisResult<(MultiplexedConnection, u64)> {
        // One task connects, and the others wait for it.
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.number));
        }
        let connection = connect(&self.client).await?;
        current.number = current.number.wrapping_add(1);
        current.connection = Some(connection.clone());
        Ok((connection, current.number))
    }

    async fn forget(&self, number: u64) {
        let mut current = self.current.lock().await;
        if current.number == number {
            current.connection = None;
        }
    }
}

impl Transport for Own {
    fn ask<'a>(&'a self, command: &'a Cmd, time: Duration) -> Answer<'a> {
        Box::pin(async move {
            let (mut connection, number) = self.connection().await?;
            let answer = within(time, connection.req_packed_command(command)).await;
            // A server that is no longer primary is not asked again: a new connection asks who is.
            if answer.as_ref().err().is_some_and(may_pass) {
                self.forget(number).await;
            }
            answer
        })
    }
}

/// Makes a connection whose answers may take as long as they like.
pub(super) async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIME))
        .set_response_timeout(None);
    within(
        CONNECT_TIME,
        client.get_multiplexed_async_connection_with_config(&config),
    )
    .await
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
