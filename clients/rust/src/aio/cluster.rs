use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;

use super::link::{Own, within};
use super::listener::{Hub, Subscribed};
use crate::cluster::{self, Topology, slot_of, slot_of_commands, tag_of};
use crate::driver::locked;
use crate::info::Address;

/// A cluster's nodes, each with a connection that all tasks share.
pub(super) struct Nodes {
    topology: Topology,
    by_address: Mutex<HashMap<Address, Arc<Own>>>,
    /// One task asks for the slots, and the others wait for it.
    asking: AsyncMutex<()>,
    hub: Arc<Hub>,
}

impl cluster::Nodes for Nodes {
    async fn send(&self, node: &Address, commands: &[Cmd], time: Duration) -> RedisResult<Value> {
        self.node(node)?.send(commands, time).await
    }

    fn has_failed(&self, node: &Address, error: &RedisError, has_moved: bool) {
        // A node that is silent may still seem to be listened to.
        if error.is_timeout() {
            self.hub.connect_anew(&Some(node.clone()));
        }
        if has_moved {
            self.hub.subscribe_anew();
        }
    }
}

impl Nodes {
    pub(super) fn new(topology: Topology, hub: Arc<Hub>) -> Self {
        Self {
            topology,
            by_address: Mutex::default(),
            asking: AsyncMutex::default(),
            hub,
        }
    }

    /// Listens for a key at the node that has its slot, as far as is known.
    pub(super) async fn listen(&self, key: &[u8], time: Duration) -> RedisResult<Subscribed> {
        let slot = slot_of(key);
        let owner = self.owner(slot, time).await?;
        let (node, tag) = (Some(owner.clone()), Some(tag_of(slot)));
        let source = &self.node(&owner)?.source;
        let listening = self.hub.ready(node, tag, source, time).await;
        listening.inspect_err(|error| {
            self.topology.learn_from(self, &owner, error);
        })
    }

    /// Sends commands to the node of their slot. Returns the node that has answered, too.
    pub(super) async fn send(
        &self,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        let owner = self.owner(slot_of_commands(commands), time).await?;
        self.topology.send(self, owner, commands, time).await
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
        let mut nodes = locked(&self.by_address);
        if let Some(node) = nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Arc::new(Own::node(Client::open(self.topology.info(address))?));
        nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    pub(super) async fn close(&self) {
        let nodes = std::mem::take(&mut *locked(&self.by_address));
        for node in nodes.values() {
            node.close().await;
        }
    }
}
