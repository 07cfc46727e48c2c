//! What the clients of a server in memory see, word by word. Only scenarios read it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Client;
use crate::command::{Error, Reply};
use crate::engine::{Count, Message};
use crate::lock::Token;

/// What clients were told since somebody has looked.
#[derive(Clone, Default)]
pub(in super::super) struct Log {
    pub(in super::super) replies: Vec<(Client, Said)>,
    /// What was heard, each with its channel: `event fence key-length key token`.
    pub(in super::super) messages: Vec<(Vec<u8>, String)>,
    /// The channels to which somebody listens.
    pub(in super::super) heard_channels: BTreeSet<Vec<u8>>,
    pub(in super::super) is_in_transaction: bool,
}

/// A reply.
#[derive(Clone, Debug)]
pub(in super::super) enum Said {
    Null,
    Number(u64),
    /// The fence that came with a new token.
    Made(u64),
    /// A result.
    Text(String),
    /// OK or QUEUED.
    Status(&'static str),
    /// With its code.
    Error(String),
}

impl From<Reply<'_>> for Said {
    fn from(reply: Reply<'_>) -> Self {
        match reply {
            Reply::Fence(fence) => Self::Number(fence.get()),
            Reply::Pair(_, fence) => Self::Made(fence.get()),
            Reply::Value(value) => Self::Text(String::from_utf8_lossy(value).into()),
            Reply::Done(done) => Self::Number(done.into()),
            Reply::Count(n) => Self::Number(n.try_into().unwrap()),
            Reply::Queued => Self::Status("QUEUED"),
            Reply::Null => Self::Null,
            Reply::Error(error) => Self::Error(error.message().to_str().unwrap().into()),
        }
    }
}

impl From<Error> for Said {
    fn from(error: Error) -> Self {
        Self::from(Reply::Error(error))
    }
}

impl Log {
    /// Publishes a message. Whether somebody listens.
    pub(super) fn publish(
        &mut self,
        channel: &[u8],
        message: Message,
        key: &[u8],
        token: Token<'_>,
    ) -> bool {
        let is_heard = self.heard_channels.contains(channel);
        if is_heard {
            let text = String::from_utf8(message.bytes(key, token)).unwrap();
            self.messages.push((channel.to_vec(), text));
        }
        is_heard
    }
}

/// The counters of what only a server does.
const OF_A_SERVER: [&str; 6] = [
    "evicted",
    "executed",
    "expired",
    "forced",
    "not_held",
    "published",
];

/// The counters that are not 0. Those of a server are as expected.
pub(in super::super) fn counted(
    counts: [u64; Count::ALL.len()],
    expected: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let names = Count::ALL.map(|(_, name)| name.to_str().unwrap().to_string());
    let mut counted: BTreeMap<_, _> = names.into_iter().zip(counts).collect();
    for name in OF_A_SERVER {
        counted.insert(name.into(), expected.get(name).copied().unwrap_or(0));
    }
    counted.retain(|_, n| *n > 0);
    counted
}
