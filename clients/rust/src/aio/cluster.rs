use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;

use super::link::{Own, within};
use super::listener::{Hub, Subscribed};
use super::shards::Shards;
use crate::cluster::{self, Route, Topology, slot_of, slot_of_commands};
use crate::info::Address;

/// A cluster's nodes, each with a connection that all tasks share.
pub(super) struct Nodes {
    topology: Topology,
    by_address: Mutex<HashMap<Address, Arc<Own>>>,
    /// One task asks for the slots, and the others wait for it.
    asking: AsyncMutex<()>,
    shards: Shards,
}

impl cluster::Nodes for Nodes {
    async fn send(&self, node: &Address, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        self.node(node)?.send(commands, time).await
    }

    /// A node that is silent may still seem to be listened to.
    fn has_failed(&self, node: &Address, error: &RedisError) {
        if error.is_timeout() {
            self.shards.connect_anew(node);
        }
    }

    fn has_moved(&self) {
        self.shards.has_moved();
    }
}

impl Nodes {
    pub(super) fn new(topology: Topology, hub: &Arc<Hub>) -> Self {
        Self {
            topology,
            by_address: Mutex::default(),
            asking: AsyncMutex::default(),
            shards: Shards::new(hub),
        }
    }

    /// Listens for a key at the node that has its slot, as far as is known.
    pub(super) async fn ready(&self, key: &[u8], time: Duration) -> RedisResult<Subscribed> {
        let slot = slot_of(key);
        let mut route = Route::new(slot, self.owner(slot, time).await?);
        loop {
            let node = &route.node;
            let info = self.topology.info(node);
            match self.shards.ready(slot, node.clone(), info, time).await {
                Ok(subscribed) => return Ok(subscribed),
                // A channel is at one node, also while its slot is on its way.
                Err(error) if error.code() == Some("ASK") => return Err(error),
                Err(error) => self.topology.follow(self, &mut route, error)?,
            }
        }
    }

    /// Sends commands to the node of their slot. Returns the node that has answered, too.
    pub(super) async fn send(
        &self,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        let slot = slot_of_commands(commands);
        let owner = self.owner(slot, time).await?;
        let to = (slot, owner);
        self.topology.send(self, to, commands, time).await
    }

    async fn owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        if let Some(address) = self.topology.owner(slot) {
            return Ok(address);
        }
        // Those before it may each wait for nodes that are silent.
        let asking = async {
            let _asking = self.asking.lock().await;
            self.topology.ask_owner(self, slot, time).await
        };
        within(time, asking).await
    }

    fn node(&self, address: &Address) -> RedisResult<Arc<Own>> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Arc::new(Own::node(Client::open(self.topology.info(address))?));
        nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    pub(super) async fn close(&self) {
        let nodes = std::mem::take(&mut *self.nodes());
        for node in nodes.values() {
            node.close().await;
        }
        self.shards.close();
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Arc<Own>>> {
        let nodes = self.by_address.lock();
        nodes.unwrap_or_else(PoisonError::into_inner)
    }
}
