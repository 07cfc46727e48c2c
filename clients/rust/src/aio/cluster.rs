use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Client, Cmd, RedisError, RedisResult, Value};
use tokio::sync::Mutex as AsyncMutex;

use super::hub::{Hub, Subscribed};
use super::shards::Shards;
use super::transport::{Answer, Own, Transport};
use crate::address::Address;
use crate::cluster::{REDIRECTIONS, Redirection, Topology, is_stale, slot_of, slot_of_command};

/// The time for the slots of a cluster. The next node is asked after it.
const SLOTS_TIME: Duration = Duration::from_secs(1);

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
        let mut redirections = 0..REDIRECTIONS;
        loop {
            let node = self.owner(slot, time).await?;
            let info = self.topology.info(&node);
            let error = match self.shards.ready(slot, node.clone(), info, time).await {
                Ok(subscribed) => return Ok(subscribed),
                Err(error) => error,
            };
            self.note(&error, &node);
            match Redirection::of(&error, &node) {
                Some(Redirection::Moved(next)) if redirections.next().is_some() => {
                    self.has_moved(slot, &next);
                }
                _ => return Err(error),
            }
        }
    }

    /// Sends a command to the node of its slot. Returns the node that has answered, too.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        let slot = slot_of_command(command);
        let mut address = self.owner(slot, time).await?;
        let mut is_asking = false;
        let mut redirections = 0..REDIRECTIONS;
        loop {
            let node = self.node(&address)?;
            let answer = match is_asking {
                true => node.ask_asking(command, time).await,
                false => node.ask(command, time).await,
            };
            let error = match answer.and_then(Value::extract_error) {
                Ok(answer) => return Ok((answer, address)),
                Err(error) => error,
            };
            self.note(&error, &address);
            match Redirection::of(&error, &address) {
                Some(redirection) if redirections.next().is_some() => {
                    is_asking = matches!(redirection, Redirection::Ask(_));
                    address = match redirection {
                        Redirection::Ask(address) => address,
                        Redirection::Moved(address) => {
                            self.has_moved(slot, &address);
                            address
                        }
                    };
                }
                _ => return Err(error),
            }
        }
    }

    fn has_moved(&self, slot: u16, node: &Address) {
        if self.topology.has_moved(slot, node) {
            self.shards.has_moved();
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
        let _asking = self.asking.lock().await;
        if let Some(address) = self.topology.owner(slot) {
            return Ok(address);
        }
        let mut last = None;
        for address in self.topology.candidates() {
            let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
            let node = self.node(&address)?;
            let answer = node.ask(&question, time.min(SLOTS_TIME)).await;
            match answer.and_then(Value::extract_error) {
                Ok(slots) if self.topology.learn(&slots, &address) => break,
                Ok(_) => {}
                Err(error) => last = Some(error),
            }
        }
        let owner = self.topology.owner(slot);
        let nobody = || (redis::ErrorKind::Io, "no node knows the slots").into();
        owner.ok_or_else(|| last.unwrap_or_else(nobody))
    }

    fn node(&self, address: &Address) -> RedisResult<Arc<Own>> {
        let mut nodes = self
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Arc::new(Own::node(Client::open(self.topology.info(address))?));
        nodes.insert(address.clone(), node.clone());
        Ok(node)
    }
}

impl Transport for Arc<Nodes> {
    fn ask<'a>(&'a self, command: &'a Cmd, time: Duration) -> Answer<'a> {
        Box::pin(async move {
            let (answer, _) = self.send(command, time).await?;
            Ok(answer)
        })
    }
}
