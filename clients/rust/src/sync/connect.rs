use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use crate::driver::answered;

/// The time for a new connection. A server that is there accepts at once.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// Makes connections to the server that has the locks.
///
/// `redis::Client` does, and with the feature `sentinel` a `Sentinel`. Implement it for what else
/// finds a primary:
///
/// ```
/// use std::{sync::Mutex, time::Duration};
/// use redis_lock_client::sync::{Connect, Connection};
///
/// struct Primary(Mutex<Vec<redis::Client>>);
///
/// impl Connect for Primary {
///     fn connect(&self, timeout: Duration) -> redis::RedisResult<Box<dyn Connection>> {
///         let clients = self.0.lock().unwrap();
///         Ok(Box::new(clients[0].get_connection_with_timeout(timeout)?))
///     }
/// }
/// ```
pub trait Connect: Send + Sync {
    /// Makes a connection within `timeout`. A client asks again after a connection or a server has
    /// failed.
    fn connect(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>>;
}

impl Connect for redis::Client {
    fn connect(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        Ok(Box::new(self.get_connection_with_timeout(timeout)?))
    }
}

/// A connection that one thread uses at a time.
pub trait Connection: Send {
    /// Sends commands together, once, and waits for each answer, `timeout` at most. Returns the
    /// answer to one command, an array of the answers to several, or an error of them.
    ///
    /// A connection that failed here is not used again, because a late answer would be taken for
    /// the next one's.
    fn ask(&mut self, commands: &[Cmd], timeout: Duration) -> RedisResult<Value>;
}

impl Connection for redis::Connection {
    fn ask(&mut self, commands: &[Cmd], timeout: Duration) -> RedisResult<Value> {
        self.set_write_timeout(Some(timeout))?;
        self.set_read_timeout(Some(timeout))?;
        let packed: Vec<_> = commands.iter().map(Cmd::get_packed_command).collect();
        self.send_packed_command(&packed.concat())?;
        let answers = commands.iter().map(|_| {
            loop {
                match self.recv_response()? {
                    Value::Push { .. } => {}
                    answer => return Ok(answer),
                }
            }
        });
        answered(answers.collect::<RedisResult<_>>()?)
    }
}
