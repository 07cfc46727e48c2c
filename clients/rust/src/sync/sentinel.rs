use std::time::Duration;

use redis::{Client, ConnectionInfo, RedisResult};

use super::connect::{Connect, Connection};
use crate::info::Address;
use crate::sentinel::{Sentinel, is_primary};

impl Connect for Sentinel {
    fn connect(&self, timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        let mut last = None;
        let mut tried = Vec::new();
        for (number, sentinel) in self.in_turn() {
            match self.primary_of(sentinel, &mut tried, timeout) {
                Ok(connection) => {
                    self.has_named(number);
                    return Ok(Box::new(connection));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| self.nobody()))
    }
}

impl Sentinel {
    fn primary_of(
        &self,
        sentinel: &ConnectionInfo,
        tried: &mut Vec<Address>,
        timeout: Duration,
    ) -> RedisResult<redis::Connection> {
        let mut connection = open(sentinel.clone(), timeout)?;
        let address = self.read(&connection.ask(&[self.question()], timeout)?)?;
        // Most sentinels name the same one, and one that is silent takes its time.
        if tried.contains(&address) {
            return Err(self.nobody());
        }
        tried.push(address.clone());
        let mut server = open(self.server(&address)?, timeout)?;
        let role = server.ask(&[redis::cmd("ROLE")], timeout);
        match is_primary(&role) {
            true => Ok(server),
            false => Err(self.nobody()),
        }
    }
}

fn open(info: ConnectionInfo, timeout: Duration) -> RedisResult<redis::Connection> {
    Client::open(info)?.get_connection_with_timeout(timeout)
}
