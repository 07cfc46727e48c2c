use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Client, Cmd, RedisResult, Value};

use super::connect::{Connect, Connection};
use super::driver::{Pool, now};
use crate::cluster::{self, Topology, slot_of_commands};
use crate::driver::locked;
use crate::info::Address;

/// A cluster's nodes, each with connections of its own.
#[derive(Clone)]
pub(super) struct Nodes(Arc<Inner>);

struct Inner {
    topology: Topology,
    pools: Mutex<HashMap<Address, Arc<Pool>>>,
}

impl Nodes {
    pub(super) fn new(topology: Topology) -> Self {
        Self(Arc::new(Inner {
            topology,
            pools: Mutex::default(),
        }))
    }
}

impl Connect for Nodes {
    fn connect(&self, _timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        // It takes connections when it has a command to send.
        Ok(Box::new(self.clone()))
    }
}

impl Connection for Nodes {
    fn ask(&mut self, commands: &[Cmd], timeout: Duration) -> RedisResult<Value> {
        let (nodes, topology) = (&*self.0, &self.0.topology);
        let slot = slot_of_commands(commands);
        let owner = now(topology.ask_owner(nodes, slot, timeout))?;
        let sent = now(topology.send(nodes, owner, commands, timeout))?;
        Ok(sent.0)
    }
}

impl cluster::Nodes for Inner {
    async fn send(&self, node: &Address, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        let client = Client::open(self.topology.info(node))?;
        let pool = {
            let mut pools = locked(&self.pools);
            let pool = pools.entry(node.clone());
            pool.or_insert_with(|| Arc::new(Pool::new(client))).clone()
        };
        pool.ask(commands, time)
    }
}
