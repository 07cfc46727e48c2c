//! The connections by which the hub hears.

use std::sync::Arc;
use std::time::Duration;

use redis::{Client, RedisResult};
use tokio::runtime::Handle;

use super::hub::Hub;

/// Where a client listens for its grants.
pub(super) enum Ear {
    /// Nowhere.
    Deaf,
    /// On a connection of the hub's, which this makes.
    Channel(Client),
    /// On a cluster's connections, by one channel for each slot.
    #[cfg(feature = "cluster")]
    Shards(Box<shards::Shards>),
}

impl Ear {
    /// Subscribes, unless it is subscribed. Returns the subscription's number and the channel for a key.
    pub(super) async fn ready(
        &self,
        hub: &Arc<Hub>,
        runtime: &Handle,
        #[cfg_attr(not(feature = "cluster"), allow(unused_variables))] key: &[u8],
        time: Duration,
    ) -> RedisResult<(u64, String)> {
        match self {
            Self::Deaf => Err((redis::ErrorKind::Client, "nothing listens").into()),
            Self::Channel(client) => {
                let number = hub.ready(client, runtime, time).await?;
                Ok((number, hub.channel().to_owned()))
            }
            #[cfg(feature = "cluster")]
            Self::Shards(shards) => shards.ready(hub, key, time).await,
        }
    }
}

#[cfg(feature = "cluster")]
mod shards {
    use std::collections::HashMap;
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use redis::cluster_async::ClusterConnection;
    use redis::{PushInfo, PushKind, RedisResult, Value};
    use tokio::sync::{Mutex, mpsc};

    use super::super::hub::Hub;
    use super::super::transport::within;
    use super::Ear;

    /// The channels of a cluster. They stay subscribed, one for each slot that was waited for.
    pub(in crate::aio) struct Shards {
        connection: ClusterConnection,
        by_slot: Mutex<HashMap<u16, Shard>>,
    }

    #[derive(Clone)]
    struct Shard {
        channel: String,
        /// The number of the hub's subscription when this one was made.
        number: u64,
    }

    impl Ear {
        pub(in crate::aio) fn shards(
            connection: ClusterConnection,
            pushes: mpsc::UnboundedReceiver<PushInfo>,
            hub: &Arc<Hub>,
        ) -> Self {
            hub.subscribed_anew();
            tokio::spawn(hear(Arc::downgrade(hub), pushes));
            Self::Shards(Box::new(Shards {
                connection,
                by_slot: Mutex::default(),
            }))
        }
    }

    impl Shards {
        pub(super) async fn ready(
            &self,
            hub: &Hub,
            key: &[u8],
            time: Duration,
        ) -> RedisResult<(u64, String)> {
            let slot = slot_of(key);
            let number = hub.number();
            let mut by_slot = self.by_slot.lock().await;
            if let Some(shard) = by_slot.get(&slot)
                && shard.number == number
            {
                return Ok((number, shard.channel.clone()));
            }
            let channel = match by_slot.get(&slot) {
                Some(shard) => shard.channel.clone(),
                None => format!("{}:{{{}}}", hub.channel(), tag_of(slot)),
            };
            let mut connection = self.connection.clone();
            within(time, connection.ssubscribe(channel.as_str())).await?;
            by_slot.insert(
                slot,
                Shard {
                    channel: channel.clone(),
                    number,
                },
            );
            Ok((number, channel))
        }
    }

    /// Dispatches what the cluster's nodes push, until the connection or the hub is gone.
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

    /// The slot of a key: of what is between its first braces, if there is anything.
    fn slot_of(key: &[u8]) -> u16 {
        let tagged = || {
            let open = key.iter().position(|&byte| byte == b'{')?;
            let rest = key.get(open.checked_add(1)?..)?;
            let close = rest.iter().position(|&byte| byte == b'}')?;
            rest.get(..close).filter(|tag| !tag.is_empty())
        };
        crc16(tagged().unwrap_or(key)) & 0x3fff
    }

    /// A text whose slot this is. Any key of the slot shares it, whatever bytes the key has.
    fn tag_of(slot: u16) -> String {
        (0_u32..)
            .map(|number| number.to_string())
            .find(|tag| slot_of(tag.as_bytes()) == slot)
            .unwrap_or_default()
    }

    /// CRC16 as XMODEM has it.
    fn crc16(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
                0 => crc << 1,
                _ => (crc << 1) ^ 0x1021,
            })
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn slots_are_the_servers() {
            assert_eq!(crc16(b"123456789"), 0x31c3);
            assert_eq!(slot_of(b"foo"), 12_182);
            assert_eq!(slot_of(b"a{foo}b{bar}"), 12_182);
            assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") & 0x3fff);
            assert_eq!(slot_of(b"}{foo"), crc16(b"}{foo") & 0x3fff);
        }

        #[test]
        fn each_slot_has_a_tag() {
            for slot in (0..16_384).step_by(1_000).chain([16_383]) {
                assert_eq!(slot_of(format!("x:{{{}}}", tag_of(slot)).as_bytes()), slot);
            }
        }
    }
}
