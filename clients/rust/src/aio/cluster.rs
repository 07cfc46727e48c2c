use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;

use super::link::{Own, within};
use super::listener::{Hub, Subscribed};
use super::shards::Shards;
use crate::cluster::{Route, SLOTS_TIME, Topology, is_stale, slot_of, slot_of_command};
use crate::info::Address;

/// A cluster's nodes, each with a connection that all tasks share.
pub(super) struct Nodes {
    topology: Topology,
    by_address: Mutex<HashMap<Address, Arc<Own>>>,
    /// One task asks for the slots, and the others wait for it.
    asking: AsyncMutex<()>,
    shards: Shards,
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
            let error = match self.shards.ready(slot, node.clone(), info, time).await {
                Ok(subscribed) => return Ok(subscribed),
                // A channel is at one node, also while its slot is on its way.
                Err(error) if error.code() == Some("ASK") => return Err(error),
                Err(error) => error,
            };
            self.follow(&mut route, error)?;
        }
    }

    /// Sends a command to the node of its slot. Returns the node that has answered, too.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        let slot = slot_of_command(command);
        let mut route = Route::new(slot, self.owner(slot, time).await?);
        loop {
            let node = self.node(&route.node)?;
            let answer = match route.is_asking {
                true => node.send_asking(command, time).await,
                false => node.send(command, time).await,
            };
            match answer.and_then(Value::extract_error) {
                Ok(answer) => return Ok((answer, route.node)),
                Err(error) => self.follow(&mut route, error)?,
            }
        }
    }

    /// Goes where a node sends a command. The error itself if that is nowhere.
    fn follow(&self, route: &mut Route, error: RedisError) -> RedisResult<()> {
        self.note(&error, &route.node);
        match route.follow(&error, &self.topology) {
            Some(has_moved) => {
                if has_moved {
                    self.shards.has_moved();
                }
                Ok(())
            }
            None => Err(error),
        }
    }

    fn note(&self, error: &RedisError, node: &Address) {
        if is_stale(error) {
            self.topology.forget();
        }
        // A node that is silent may still seem to be listened to.
        if error.is_timeout() {
            self.shards.connect_anew(node);
        }
    }

    async fn owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        if let Some(address) = self.topology.owner(slot) {
            return Ok(address);
        }
        // Those before it may each wait for nodes that are silent.
        within(time, self.asked_owner(slot, time)).await
    }

    async fn asked_owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        let _asking = self.asking.lock().await;
        if let Some(address) = self.topology.owner(slot) {
            return Ok(address);
        }
        let mut last = None;
        for address in self.topology.candidates() {
            let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
            let node = self.node(&address)?;
            let answer = node.send(&question, time.min(SLOTS_TIME)).await;
            match answer.and_then(Value::extract_error) {
                Ok(slots) if self.topology.learn(&slots, &address) => break,
                Ok(_) => {}
                Err(error) => last = Some(error),
            }
        }
        self.topology.owner_or(slot, last)
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
