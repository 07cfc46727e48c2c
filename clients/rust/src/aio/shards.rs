use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Value,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::timeout;

use super::link::{CONNECT_TIME, within};
use super::listener::{HEARTBEAT, Hub, Subscribed};
use crate::cluster::tag_of;
use crate::info::Address;
use crate::replies::is_unanswered;

/// The channels of a cluster, one for each slot that is waited for, at the node of the slot. They
/// stay subscribed.
pub(super) struct Shards {
    hub: Arc<Hub>,
    lines: Mutex<HashMap<Address, Current>>,
}

/// The connection to a node, which one task at a time makes.
type Current = Arc<AsyncMutex<Option<Arc<Line>>>>;

/// A connection that listens to a node.
struct Line {
    connection: MultiplexedConnection,
    /// The slots whose channels are subscribed. `None` if the connection is over.
    slots: Mutex<Option<HashSet<u16>>>,
}

impl Line {
    fn slots(&self) -> MutexGuard<'_, Option<HashSet<u16>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is over. Those that wait by it ask again.
    fn end(&self, hub: &Hub) {
        let mut slots = self.slots();
        if slots.take().is_some() {
            hub.subscribed_anew();
        }
    }

    /// A slot leaves the node, which ends the subscriptions to its channels there.
    fn clear(&self, hub: &Hub) {
        let mut slots = self.slots();
        slots.iter_mut().for_each(HashSet::clear);
        hub.subscribed_anew();
    }

    /// Whether the node answers, be it that the user has no right to ask so.
    async fn is_alive(&self) -> bool {
        let mut connection = self.connection.clone();
        let answer = redis::cmd("PING").exec_async(&mut connection).await;
        !answer.is_err_and(|error| is_unanswered(&error))
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
            let known = current.clone().filter(|line| line.slots().is_some());
            let line = match known {
                Some(line) => line,
                None => current.insert(self.connect(info).await?).clone(),
            };
            let has = |slots: &HashSet<u16>| slots.contains(&slot);
            if line.slots().as_ref().is_some_and(has) {
                return Ok(());
            }
            let mut subscribe = redis::cmd("SSUBSCRIBE");
            subscribe.arg(&subscribed.channel);
            let mut connection = line.connection.clone();
            let answer = subscribe.exec_async(&mut connection).await;
            if answer.as_ref().is_err_and(RedisError::is_io_error) {
                line.end(&self.hub);
            }
            answer?;
            let mut slots = line.slots();
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

    async fn connect(&self, info: ConnectionInfo) -> RedisResult<Arc<Line>> {
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
        let line = Arc::new(Line {
            connection,
            slots: Mutex::new(Some(HashSet::new())),
        });
        let hearing = Hearing(Arc::downgrade(&self.hub), Arc::downgrade(&line));
        tokio::spawn(hearing.run(pushes));
        Ok(line)
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
            line.end(&self.hub);
        }
    }

    pub(super) fn close(&self) {
        self.lines().clear();
        self.hub.subscribed_anew();
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Address, Current>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, node: &Address) -> Current {
        let mut lines = self.lines();
        lines.entry(node.clone()).or_default().clone()
    }
}

/// Hears what a node pushes, until its connection, the hub or the runtime is gone.
struct Hearing(Weak<Hub>, Weak<Line>);

impl Drop for Hearing {
    fn drop(&mut self) {
        if let (Some(hub), Some(line)) = (self.0.upgrade(), self.1.upgrade()) {
            line.end(&hub);
        }
    }
}

impl Hearing {
    async fn run(self, mut pushes: mpsc::UnboundedReceiver<PushInfo>) {
        loop {
            let push = timeout(HEARTBEAT, pushes.recv()).await;
            let (Some(hub), Some(line)) = (self.0.upgrade(), self.1.upgrade()) else {
                return;
            };
            match push {
                Ok(Some(push)) => match push.kind {
                    PushKind::SMessage => {
                        if let Some(Value::BulkString(payload)) = push.data.last() {
                            hub.dispatch(payload);
                        }
                    }
                    PushKind::SUnsubscribe => line.clear(&hub),
                    PushKind::Disconnection => return,
                    _ => {}
                },
                Ok(None) => return,
                // A connection that a firewall has forgotten ends without a word.
                Err(_) if line.is_alive().await => {}
                Err(_) => return,
            }
        }
    }
}
