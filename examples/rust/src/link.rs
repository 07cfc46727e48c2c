//! A connection with a time limit on every call, made anew after a failure.

use std::io;
use std::time::{Duration, Instant};

use redis::io::tcp::{socket2::TcpKeepalive, TcpSettings};
use redis::{Client, Cmd, Connection, FromRedisValue, IntoConnectionInfo, RedisError, RedisResult};

/// The pause before the next try, so that a server that is down is not asked in a busy loop.
pub const PAUSE: Duration = Duration::from_millis(50);

pub struct Link {
    client: Client,
    connection: Option<Connection>,
}

impl Link {
    pub fn to(url: &str) -> RedisResult<Self> {
        // A wait in the server is silent, however long. Probes tell a server that waits with us
        // from a machine that is gone.
        let probes = TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(1))
            .with_retries(3);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(probes);
        let info = url.into_connection_info()?.set_tcp_settings(tcp);
        Ok(Self {
            client: Client::open(info)?,
            connection: None,
        })
    }

    /// Sends a command once and waits for its reply until `deadline`. After an error nobody knows
    /// whether it was executed.
    pub fn call<T: FromRedisValue>(&mut self, command: &Cmd, deadline: Instant) -> RedisResult<T> {
        // A connection that failed is not put back: on a later call its late reply would be taken
        // for that call's.
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.client.get_connection_with_timeout(left(deadline)?)?,
        };
        let mut connection = connection;
        let timeout = Some(left(deadline)?);
        connection.set_write_timeout(timeout)?;
        connection.set_read_timeout(timeout)?;
        let reply = command.query(&mut connection)?;
        self.connection = Some(connection);
        Ok(reply)
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Whether the same command may do better in a moment: the connection broke, or the server is
/// loading, moving or no longer primary.
pub fn may_pass(error: &RedisError) -> bool {
    let retryable = ["LOADING", "TRYAGAIN", "UNBLOCKED", "READONLY", "MASTERDOWN"];
    error.is_io_error() || error.code().is_some_and(|code| retryable.contains(&code))
}
