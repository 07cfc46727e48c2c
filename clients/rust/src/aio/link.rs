//! How connections are made, and made anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, ProtocolVersion, PushInfo, RedisResult, Value,
};
use tokio::sync::{Mutex, mpsc};

use super::driver::Tasks;
use super::listener::Hub;
use crate::driver::Driver;
use crate::replies::is_to_leave;
use crate::server::{Batch, CONNECT_TIME, Source, answered, rest_for_answer};

/// Makes a connection whose answers may take as long as they like, or one that listens.
pub(super) async fn connect(
    mut client: Client,
    pushes: Option<mpsc::UnboundedSender<PushInfo>>,
) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIME));
    let mut config = config.set_response_timeout(pushes.as_ref().map(|_| CONNECT_TIME));
    if let Some(pushes) = pushes {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        client = Client::open(info.set_redis_settings(settings))?;
        config = config.set_push_sender(pushes);
    }
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await
}

/// A shared connection, made anew after a failure.
pub(crate) struct Own {
    pub(super) source: Source,
    current: Mutex<Option<Arc<MultiplexedConnection>>>,
    /// The one before was refused or cut.
    has_left: AtomicBool,
    /// Is told when a connection takes the place of one that was refused or cut, as it may be to
    /// another server. A busy server is only late: those that wait must not all ask it again.
    hub: Option<Arc<Hub>>,
}

impl Own {
    pub(super) fn new(source: Source, hub: Option<Arc<Hub>>) -> Self {
        Self {
            source,
            current: Mutex::default(),
            has_left: AtomicBool::new(false),
            hub,
        }
    }

    /// The present connection, or a new one. A short time for an answer leaves a second for that.
    async fn connection(&self, time: Duration) -> RedisResult<Arc<MultiplexedConnection>> {
        let time = time.clamp(Duration::from_secs(1), CONNECT_TIME);
        let connecting = async {
            // One task connects, and the others wait for it.
            let mut current = self.current.lock().await;
            if let Some(connection) = &*current {
                return Ok(connection.clone());
            }
            let client = self.source.client::<Tasks>(time).await?;
            let connection = Arc::new(connect(client, None).await?);
            match &self.hub {
                Some(hub) if self.has_left.swap(false, Relaxed) => hub.connect_anew(&None),
                _ => {}
            }
            *current = Some(connection.clone());
            Ok(connection)
        };
        Tasks::in_time(time, connecting).await
    }

    pub(super) async fn send(&self, batch: Batch<'_>) -> RedisResult<Value> {
        let start = Instant::now();
        let connection = self.connection(batch.time).await?;
        let time = rest_for_answer(start, batch.time);
        let answer = Tasks::in_time(time, ask(&connection, batch.commands)).await;
        if let Err(error) = &answer
            && is_to_leave(error)
        {
            let mut current = self.current.lock().await;
            let is_present = |present: &mut Arc<_>| Arc::ptr_eq(present, &connection);
            // A server that is no longer primary is not asked again: a new one asks who is.
            if current.take_if(is_present).is_some() {
                self.has_left.fetch_or(!error.is_timeout(), Relaxed);
            }
        }
        answer
    }

    pub(super) async fn close(&self) {
        *self.current.lock().await = None;
    }
}

/// Sends commands together, as `answered` says.
async fn ask(connection: &MultiplexedConnection, commands: &[Cmd]) -> RedisResult<Value> {
    let mut connection = connection.clone();
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command.clone());
    }
    let asking = connection.req_packed_commands(&pipeline, 0, commands.len());
    answered(asking.await?)
}
