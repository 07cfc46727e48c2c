use std::sync::Mutex;
use std::time::Duration;

use redis::{Client, Cmd, ConnectionInfo, RedisResult, Value};

use super::connect::{Connect, Connection};
use super::driver::{Blocking, now};
use crate::sentinel::{Ask, Sentinel};

impl Ask for Blocking {
    async fn ask(server: ConnectionInfo, command: Cmd, time: Duration) -> RedisResult<Value> {
        let mut connection = Client::open(server)?.get_connection_with_timeout(time)?;
        connection.ask(&[command], time)
    }
}

impl Connect for Sentinel {
    fn connect(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        let mut last = self.nobody();
        let asked = Mutex::default();
        for sentinel in self.in_turn() {
            match now(self.named_by::<Blocking>(sentinel, &asked, timeout)) {
                Ok(server) => return Client::open(server)?.connect(timeout),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
