use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, IntoConnectionInfo, RedisResult, Value};
use tokio::sync::Mutex;

use super::link::{Own, Source, within};
use super::listener::{Hub, Subscribed};
use crate::cluster::{Cluster, slot_of, slot_of_commands, tag_of};
use crate::error::Result;
use crate::info::Address;

/// A cluster's nodes, each with a connection that all tasks share.
pub(super) struct Nodes {
    pub(super) cluster: Cluster<Own>,
    /// One task asks for the slots, and the others wait for it.
    asking: Mutex<()>,
    hub: Arc<Hub>,
}

impl Nodes {
    pub(super) fn new<A: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = A>,
        hub: Arc<Hub>,
    ) -> Result<Self> {
        let listens = hub.clone();
        let cluster = Cluster::new(nodes, move |node, error, has_moved| {
            // A node that is silent may still seem to be listened to.
            if error.is_timeout() {
                listens.connect_anew(&Some(node.clone()));
            }
            if has_moved {
                listens.subscribe_anew();
            }
        })?;
        Ok(Self {
            cluster,
            asking: Mutex::default(),
            hub,
        })
    }

    /// Listens for a key at the node that has its slot, as far as is known.
    pub(super) async fn listen(&self, key: &[u8], time: Duration) -> RedisResult<Subscribed> {
        let slot = slot_of(key);
        let owner = self.owner(slot, time).await?;
        let (node, tag) = (Some(owner.clone()), Some(tag_of(slot)));
        let source = Source::from(self.cluster.client(&owner)?);
        let listening = self.hub.ready(node, tag, &source, time).await;
        listening.inspect_err(|error| {
            self.cluster.learn_from(&owner, error);
        })
    }

    /// Sends commands to the node of their slot. Returns the node that has answered, too.
    pub(super) async fn send(
        &self,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        self.owner(slot_of_commands(commands), time).await?;
        self.cluster.send(commands, time).await
    }

    async fn owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        if let Some(address) = self.cluster.owner(slot) {
            return Ok(address);
        }
        // Those before it may each wait for nodes that are silent.
        let asking = async {
            let _asking = self.asking.lock().await;
            self.cluster.ask_owner(slot, time).await
        };
        within(time, asking).await
    }
}
