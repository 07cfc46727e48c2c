//! The connections by which the hub hears.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use tokio::runtime::Handle;

use super::hub::Hub;
use super::transport::Source;

/// Where a client listens for its grants.
pub(super) enum Ear {
    /// Nowhere.
    Deaf,
    /// On a connection of the hub's, which this makes.
    Channel(Source),
    /// On a cluster's connections, by one channel for each slot.
    #[cfg(feature = "cluster-async")]
    Shards(Arc<shards::Shards>),
}

impl Ear {
    /// Subscribes, unless it is subscribed. Returns the subscription's number and the channel for a key.
    pub(super) async fn ready(
        &self,
        hub: &Arc<Hub>,
        runtime: &Handle,
        #[cfg_attr(not(feature = "cluster-async"), allow(unused_variables))] key: &[u8],
        time: Duration,
    ) -> RedisResult<(u64, String)> {
        match self {
            Self::Deaf => Err((redis::ErrorKind::Client, "nothing listens").into()),
            Self::Channel(source) => {
                let number = hub.ready(source, runtime, time).await?;
                Ok((number, hub.channel().to_owned()))
            }
            #[cfg(feature = "cluster-async")]
            Self::Shards(shards) => shards.ready(key, time).await,
        }
    }
}

#[cfg(feature = "cluster-async")]
pub(super) mod shards {
    use std::collections::HashMap;
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use redis::cluster::{ClusterClient, ClusterClientBuilder};
    use redis::cluster_async::ClusterConnection;
    use redis::{ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult, Value};
    use tokio::runtime::Handle;
    use tokio::sync::{Mutex, mpsc};

    use super::super::hub::Hub;
    use super::super::transport::{CONNECT_TIME, within};
    use crate::cluster::{slot_of, tag_of};

    /// The channels of a cluster, one for each slot that is waited for. They stay subscribed.
    pub(in crate::aio) struct Shards {
        hub: Arc<Hub>,
        client: ClusterClient,
        current: Mutex<Current>,
    }

    #[derive(Default)]
    struct Current {
        connection: Option<ClusterConnection>,
        /// The number of the hub's subscription when each was made.
        by_slot: HashMap<u16, u64>,
    }

    impl Shards {
        pub(in crate::aio) fn new(nodes: Vec<ConnectionInfo>, hub: &Arc<Hub>) -> RedisResult<Self> {
            let (sender, pushes) = mpsc::unbounded_channel();
            let client = ClusterClientBuilder::new(nodes)
                .use_protocol(ProtocolVersion::RESP3)
                .connection_timeout(CONNECT_TIME)
                .response_timeout(CONNECT_TIME)
                .push_sender(sender)
                .build()?;
            hub.subscribed_anew();
            Handle::current().spawn(hear(Arc::downgrade(hub), pushes));
            Ok(Self {
                hub: hub.clone(),
                client,
                current: Mutex::default(),
            })
        }

        pub(super) async fn ready(&self, key: &[u8], time: Duration) -> RedisResult<(u64, String)> {
            let slot = slot_of(key);
            let channel = format!("{}:{{{}}}", self.hub.channel(), tag_of(slot));
            let mut current = self.current.lock().await;
            let number = self.hub.number();
            if current.by_slot.get(&slot) == Some(&number) {
                return Ok((number, channel));
            }
            let subscribing = async {
                let mut connection = match &current.connection {
                    Some(connection) => connection.clone(),
                    None => self.client.get_async_connection().await?,
                };
                connection.ssubscribe(channel.as_str()).await?;
                Ok(connection)
            };
            let subscribed = within(time, subscribing).await;
            // What the connection knows of the nodes may be what keeps it from an answer.
            match subscribed {
                Ok(connection) => current.connection = Some(connection),
                Err(error) => {
                    if error.is_io_error() {
                        current.connection = None;
                    }
                    return Err(error);
                }
            }
            current.by_slot.insert(slot, number);
            Ok((number, channel))
        }

        /// A slot has another node: its waiters subscribe there, and ask again.
        pub(in crate::aio) fn has_moved(&self) {
            self.hub.subscribed_anew();
        }

        /// Gives up connections that may be dead.
        pub(in crate::aio) async fn connect_anew(&self) {
            let was_connected = self.current.lock().await.connection.take().is_some();
            if was_connected {
                self.hub.subscribed_anew();
            }
        }
    }

    /// Dispatches what the cluster's nodes push, until the hub is gone.
    async fn hear(hub: Weak<Hub>, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
        while let Some(push) = pushes.recv().await {
            let Some(hub) = hub.upgrade() else {
                return;
            };
            match push.kind {
                PushKind::SMessage => {
                    if let Some(Value::BulkString(payload)) = push.data.last() {
                        hub.dispatch(payload);
                    }
                }
                // A slot that leaves its node ends the subscription to its channels there.
                PushKind::Disconnection | PushKind::SUnsubscribe => hub.subscribed_anew(),
                _ => {}
            }
        }
    }
}
