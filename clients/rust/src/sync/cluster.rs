use std::sync::Arc;
use std::time::Duration;

use redis::{Client, Cmd, RedisResult, Value};

use super::connect::{Connect, Connection};
use super::driver::{Pool, now};
use crate::cluster::{Cluster, Node, slot_of_commands};

/// A cluster's nodes, each with connections of its own.
pub(super) type Nodes = Arc<Cluster<Pool>>;

impl Connect for Nodes {
    fn connect(&self, _timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        // It takes connections when it has a command to send.
        Ok(Box::new(self.clone()))
    }
}

impl Connection for Nodes {
    fn ask(&mut self, commands: &[Cmd], timeout: Duration) -> RedisResult<Value> {
        let slot = slot_of_commands(commands);
        let owner = now(self.ask_owner(slot, timeout))?;
        let (answer, _) = now(self.send(owner, commands, timeout))?;
        Ok(answer)
    }
}

impl Node for Pool {
    fn of(client: Client) -> Self {
        Self::new(client)
    }

    async fn send(&self, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        self.ask(commands, time)
    }
}
