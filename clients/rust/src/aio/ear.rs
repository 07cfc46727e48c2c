//! The connections by which the hub hears.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::runtime::Handle;

use super::hub::{Hub, Subscribed};
use super::transport::{Source, Transport};

/// Where a client listens for its grants.
pub(super) enum Ear {
    /// Nowhere.
    Deaf,
    /// On a connection of the hub's, which this makes.
    Channel(Source),
    /// On connections to the nodes of a cluster, by one channel for each slot.
    #[cfg(feature = "cluster-async")]
    Shards(Arc<super::cluster::Nodes>),
}

impl Ear {
    /// Subscribes to the channel for a key, unless it is subscribed.
    pub(super) async fn ready(
        &self,
        hub: &Arc<Hub>,
        runtime: &Handle,
        #[cfg_attr(not(feature = "cluster-async"), allow(unused_variables))] key: &[u8],
        time: Duration,
    ) -> RedisResult<Subscribed> {
        match self {
            Self::Deaf => Err((redis::ErrorKind::Client, "nothing listens").into()),
            Self::Channel(source) => Ok(Subscribed {
                number: hub.ready(source, runtime, time).await?,
                channel: hub.channel().to_owned(),
                #[cfg(feature = "cluster-async")]
                node: None,
            }),
            #[cfg(feature = "cluster-async")]
            Self::Shards(nodes) => nodes.ready(key, time).await,
        }
    }

    /// Sends a request whose end the channel hears. Whether the server that answers is the one that is
    /// listened to.
    pub(super) async fn ask(
        &self,
        transport: &dyn Transport,
        #[cfg_attr(not(feature = "cluster-async"), allow(unused_variables))]
        subscribed: &Subscribed,
        command: &Cmd,
        time: Duration,
    ) -> (RedisResult<Value>, bool) {
        match self {
            #[cfg(feature = "cluster-async")]
            Self::Shards(nodes) => match nodes.send(command, time).await {
                Ok((answer, node)) => (Ok(answer), subscribed.node == Some(node)),
                Err(error) => (Err(error), false),
            },
            _ => (transport.ask(command, time).await, true),
        }
    }

    /// Whether a grant that was heard is only a hint, which the next request confirms.
    ///
    /// A subscription at a node of a cluster that was the primary hears what the primary publishes.
    pub(super) const fn hears_hints(&self) -> bool {
        match self {
            #[cfg(feature = "cluster-async")]
            Self::Shards(_) => true,
            _ => false,
        }
    }
}
