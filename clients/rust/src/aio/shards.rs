use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Value,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::hub::{Hub, Subscribed};
use super::link::{CONNECT_TIME, within};
use crate::address::Address;
use crate::cluster::tag_of;

/// The channels of a cluster, one for each slot that is waited for, at the node of the slot. They
/// stay subscribed.
pub(super) struct Shards {
    hub: Arc<Hub>,
    lines: Mutex<HashMap<Address, Arc<AsyncMutex<Option<Line>>>>>,
}

/// A connection that listens to a node.
#[derive(Clone)]
struct Line {
    connection: MultiplexedConnection,
    slots: Arc<Slots>,
}

/// The slots whose channels are subscribed. `None` if the connection is over.
struct Slots(Mutex<Option<HashSet<u16>>>);

impl Slots {
    fn get(&self) -> MutexGuard<'_, Option<HashSet<u16>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is over. Those that wait by it ask again.
    fn end(&self, hub: &Hub) {
        let mut slots = self.get();
        if slots.take().is_some() {
            hub.subscribed_anew();
        }
    }

    /// A slot leaves the node, which ends the subscriptions to its channels there.
    fn clear(&self, hub: &Hub) {
        let mut slots = self.get();
        slots.iter_mut().for_each(HashSet::clear);
        hub.subscribed_anew();
    }
}

impl Shards {
    pub(super) fn new(hub: &Arc<Hub>) -> Self {
        hub.subscribed_anew();
        Self {
            hub: hub.clone(),
            lines: Mutex::default(),
        }
    }

    pub(super) async fn ready(
        &self,
        slot: u16,
        node: Address,
        info: ConnectionInfo,
        time: Duration,
    ) -> RedisResult<Subscribed> {
        let subscribed = Subscribed {
            // What ends from now on ends this one.
            number: self.hub.number(),
            channel: format!("{}:{{{}}}", self.hub.channel(), tag_of(slot)),
            node: Some(node.clone()),
        };
        let line = self.line(&node);
        let subscribing = async {
            // One task subscribes, and the others wait for it.
            let mut current = line.lock().await;
            let known = current.clone().filter(|line| line.slots.get().is_some());
            let mut line = match known {
                Some(line) => line,
                None => current.insert(self.connect(info).await?).clone(),
            };
            let has = |slots: &HashSet<u16>| slots.contains(&slot);
            if line.slots.get().as_ref().is_some_and(has) {
                return Ok(());
            }
            let mut subscribe = redis::cmd("SSUBSCRIBE");
            subscribe.arg(&subscribed.channel);
            let answer = subscribe.exec_async(&mut line.connection).await;
            if answer.as_ref().is_err_and(RedisError::is_io_error) {
                line.slots.end(&self.hub);
            }
            answer?;
            let mut slots = line.slots.get();
            // Otherwise it may be over already.
            if self.hub.number() == subscribed.number
                && let Some(slots) = slots.as_mut()
            {
                slots.insert(slot);
            }
            Ok(())
        };
        within(time, subscribing).await?;
        Ok(subscribed)
    }

    async fn connect(&self, info: ConnectionInfo) -> RedisResult<Line> {
        let settings = info.redis_settings().clone();
        let info = info.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3));
        let (sender, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIME))
            .set_response_timeout(Some(CONNECT_TIME))
            .set_push_sender(sender);
        let client = Client::open(info)?;
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = within(CONNECT_TIME, connecting).await?;
        let slots = Arc::new(Slots(Mutex::new(Some(HashSet::new()))));
        tokio::spawn(hear(Arc::downgrade(&self.hub), slots.clone(), pushes));
        Ok(Line { connection, slots })
    }

    /// A slot has another node: its waiters subscribe there, and ask again.
    pub(super) fn has_moved(&self) {
        self.hub.subscribed_anew();
    }

    /// Gives up a connection that may be dead.
    pub(super) fn connect_anew(&self, node: &Address) {
        // One that is being made is new.
        if let Ok(mut line) = self.line(node).try_lock()
            && let Some(line) = line.take()
        {
            line.slots.end(&self.hub);
        }
    }

    fn line(&self, node: &Address) -> Arc<AsyncMutex<Option<Line>>> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.entry(node.clone()).or_default().clone()
    }
}

/// Dispatches what a node pushes, until its connection or the hub is gone.
async fn hear(hub: Weak<Hub>, slots: Arc<Slots>, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
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
            PushKind::SUnsubscribe => slots.clear(&hub),
            PushKind::Disconnection => slots.end(&hub),
            _ => {}
        }
    }
}
