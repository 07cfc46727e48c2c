use std::sync::Mutex;
use std::time::Duration;

use redis::RedisResult;

use super::connect::{Connect, Connection};
use super::driver::{Pool, now};
use crate::sentinel::Sentinel;

impl Connect for Sentinel {
    fn connect(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        let mut last = self.nobody();
        let asked = Mutex::default();
        for sentinel in self.in_turn() {
            match now(self.named_by::<Pool>(sentinel, &asked, timeout)) {
                Ok(server) => return server.connect(timeout),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
