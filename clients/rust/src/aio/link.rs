use std::future::Future;
use std::io;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use tokio::time::timeout;

/// The time for a new connection. A server that is there accepts at once.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// Makes a connection whose answers may take as long as they like.
pub(super) async fn connect_to(client: &Client) -> RedisResult<MultiplexedConnection> {
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
