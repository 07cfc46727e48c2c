use std::time::Duration;

use redis::{ConnectionLike, RedisResult, Value};

use super::memcheck::patience;
use super::raw::Raw;

/// A connection for the `redis` crate that survives a stop of the test process: the crate's own
/// treats it as an error. Without a timeout, a test would hang forever on a missing reply.
pub struct Steady {
    raw: Raw,
    patience: Duration,
    is_open: bool,
}

impl Steady {
    /// Connects to a running server. A server that is exiting may accept a connection and send
    /// nothing.
    pub fn to(port: u16) -> RedisResult<Self> {
        Self::to_within(port, patience(Duration::from_secs(30)))
    }

    /// The same, and each reply comes within this time, or the connection is lost.
    pub fn to_within(port: u16, patience: Duration) -> RedisResult<Self> {
        let mut steady = Self {
            raw: Raw::connect(port)?,
            patience,
            is_open: true,
        };
        // A refusal is a reply, too.
        steady.req_packed_command(&redis::cmd("PING").get_packed_command())?;
        Ok(steady)
    }

    fn send(&mut self, packed: &[u8]) -> RedisResult<()> {
        let sent = self.raw.write(packed);
        self.is_open &= sent.is_ok();
        Ok(sent?)
    }

    /// The next reply. Push messages in between are skipped.
    fn reply(&mut self) -> RedisResult<Value> {
        loop {
            let reply = self.raw.value(self.patience);
            self.is_open &= reply.is_ok();
            if !matches!(reply, Ok(Value::Push { .. })) {
                return Ok(reply?);
            }
        }
    }
}

impl ConnectionLike for Steady {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send(command)?;
        self.reply()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(commands)?;
        for _ in 0..offset {
            self.reply()?;
        }
        (0..count).map(|_| self.reply()).collect()
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<Value>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}
