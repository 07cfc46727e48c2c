//! Servers: their addresses, and how commands are sent to them.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisResult,
    Value,
};

use crate::cluster::Cluster;
use crate::driver::Driver;

/// The time for a new connection. A server that is there accepts at once.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// A future whose type stays short, as those of a program's own must.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The host and the port of a server.
pub(crate) type Address = (String, u16);

/// Commands that are sent together, once. Those of one slot, in a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// Leads to the node of a cluster.
    pub(crate) key: &'a [u8],
    pub(crate) commands: &'a [Cmd],
    /// The longest time for all the answers. Connecting is part of it, as far as `rest_for_answer`
    /// says.
    pub(crate) time: Duration,
}

impl<'a> Batch<'a> {
    pub(crate) fn of(key: &'a [u8], commands: &'a [Cmd], time: Duration) -> Self {
        Self {
            key,
            commands,
            time,
        }
    }
}

/// The server that connections are made to.
#[derive(Clone)]
pub(crate) enum Source {
    /// Always the same.
    Server(Client),
    /// The one that sentinels name at that moment.
    Sentinel(crate::Sentinel),
}

impl Source {
    pub(crate) async fn client<D: Driver>(&self, time: Duration) -> RedisResult<Client> {
        match self {
            Self::Server(client) => Ok(client.clone()),
            Self::Sentinel(sentinel) => sentinel.primary::<D>(time).await,
        }
    }
}

/// The server, or the nodes of a cluster, by connections that are used for what is answered at once.
pub(crate) enum Servers<D: Driver> {
    One(D::Peer),
    Cluster(Box<Cluster<D>>),
}

impl<D: Driver> Servers<D> {
    /// Sends commands as `Driver::send` does. Returns the node of a cluster that has answered, too.
    pub(crate) async fn send(&self, batch: Batch<'_>) -> (RedisResult<Value>, Option<Address>) {
        match self {
            Self::One(server) => (D::send(server, batch).await, None),
            Self::Cluster(cluster) => cluster.send(batch).await,
        }
    }
}

/// An address whose connections do not tell the server the name of their library.
///
/// redis-rs waits for the answer to that, so a silent server takes the time of another one.
pub(crate) fn unnamed(address: impl IntoConnectionInfo) -> RedisResult<ConnectionInfo> {
    let info = address.into_connection_info()?;
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_redis_settings(settings))
}

/// The same connection to another server.
pub(crate) fn with_address(like: &ConnectionInfo, address: &Address) -> ConnectionInfo {
    let mut addr = like.addr().clone();
    if let ConnectionAddr::TcpTls { host, port, .. } = &mut addr {
        (*host, *port) = address.clone();
    } else {
        addr = ConnectionAddr::Tcp(address.0.clone(), address.1);
    }
    like.clone().set_addr(addr)
}

/// A part of an answer that is an array.
pub(crate) fn item<T: FromRedisValue>(answer: &Value, index: usize) -> Option<T> {
    T::from_redis_value_ref(answer.as_sequence()?.get(index)?).ok()
}

/// The answer to one command, an array of the answers to several, or the first error of them.
pub(crate) fn answered(answers: Vec<Value>) -> RedisResult<Value> {
    let one = <[Value; 1]>::try_from(answers).map(|[answer]| answer);
    one.unwrap_or_else(Value::Array).extract_error()
}

/// The time left for an answer after connecting since `start`: at least half of `time`, or a slow
/// connection would never be of use.
pub(crate) fn rest_for_answer(start: Instant, time: Duration) -> Duration {
    time.saturating_sub(start.elapsed()).max(time.div_f64(2.0))
}
