//! The slots of a cluster, and its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::{
    Arg, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult,
    Value,
};

use crate::command::hash_tag;
use crate::driver::{Peer, answered, locked};
use crate::error::Result;
use crate::info::{Address, text, unnamed, with_address};
use crate::replies::{has_code, is_unanswered};

/// The time for the slots of a cluster. The next node is asked after it.
const SLOTS_TIME: Duration = Duration::from_secs(1);

/// How often one command follows a redirection.
const REDIRECTIONS: usize = 5;

/// Is told of a node's failure, and whether a slot has moved.
type HasFailed = Box<dyn Fn(&Address, &RedisError, bool) + Send + Sync>;

/// Which node has which slot, as far as it is known, and how to ask it.
pub(crate) struct Cluster<N> {
    /// Credentials, TLS and the like are those of the first address.
    like: ConnectionInfo,
    seeds: Vec<Address>,
    inner: Mutex<Inner<N>>,
    has_failed: HasFailed,
}

struct Inner<N> {
    /// What redirections have taught comes first.
    ranges: Vec<(u16, u16, Address)>,
    nodes: BTreeMap<Address, Arc<N>>,
    questions: usize,
}

impl<N: Peer> Cluster<N> {
    pub(crate) fn new<A: IntoConnectionInfo>(
        addresses: impl IntoIterator<Item = A>,
        has_failed: impl Fn(&Address, &RedisError, bool) + Send + Sync + 'static,
    ) -> Result<Self> {
        let infos = addresses
            .into_iter()
            .map(unnamed)
            .collect::<RedisResult<Vec<_>>>()?;
        let seeds = infos.iter().filter_map(|info| match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        });
        let seeds: Vec<Address> = seeds.collect();
        let Some(like) = infos.first().filter(|_| !seeds.is_empty()) else {
            let kind = redis::ErrorKind::InvalidClientConfig;
            return Err(RedisError::from((kind, "a cluster needs the address of a node")).into());
        };
        Ok(Self {
            like: like.clone(),
            seeds,
            inner: Mutex::new(Inner {
                ranges: Vec::new(),
                nodes: BTreeMap::new(),
                questions: 0,
            }),
            has_failed: Box::new(has_failed),
        })
    }

    pub(crate) fn client(&self, address: &Address) -> RedisResult<Client> {
        Client::open(with_address(&self.like, address))
    }

    fn node(&self, address: &Address) -> RedisResult<Arc<N>> {
        let mut inner = self.inner();
        if let Some(node) = inner.nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Arc::new(N::of(self.client(address)?));
        inner.nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    /// Ends the connections. Those that are needed are made anew.
    pub(crate) fn close(&self) {
        self.inner().nodes.clear();
    }

    /// Sends commands to the node of their slot, and on to where that one sends them. Returns the
    /// node that has answered, too.
    pub(crate) async fn send(
        &self,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        let owner = self.ask_owner(slot_of_commands(commands), time).await?;
        let (mut node, mut is_asking) = (owner, false);
        let mut redirections = 0..REDIRECTIONS;
        loop {
            let error = match self.send_to(&node, is_asking, commands, time).await {
                Ok(answer) => return Ok((answer, node)),
                Err(error) => error,
            };
            match self.learn_from(&node, &error) {
                Some(next) if redirections.next().is_some() => (node, is_asking) = next,
                _ => return Err(error),
            }
        }
    }

    async fn send_to(
        &self,
        node: &Address,
        is_asking: bool,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<Value> {
        let node = self.node(node)?;
        if !is_asking {
            return node.send(commands, time).await;
        }
        // It answers although their slot has not arrived there yet.
        let pairs = commands
            .iter()
            .flat_map(|command| [redis::cmd("ASKING"), command.clone()]);
        let sent = node.send(&pairs.collect::<Vec<_>>(), time).await?;
        let answers = sent.into_sequence().unwrap_or_default();
        answered(answers.into_iter().skip(1).step_by(2).collect())
    }

    /// Where a node sends a command, and whether to say ASKING there. `None` if that is nowhere.
    pub(crate) fn learn_from(&self, node: &Address, error: &RedisError) -> Option<(Address, bool)> {
        if is_stale(error) {
            // The nodes are asked again.
            self.inner().ranges.clear();
        }
        let next = redirection(node, error);
        let has_moved = next.as_ref().is_some_and(|(slot, next, is_asking)| {
            // Only the key has arrived where a slot is on its way to, or is not there yet.
            !is_asking && self.has_moved(*slot, next)
        });
        (self.has_failed)(node, error, has_moved);
        next.map(|(_, next, is_asking)| (next, is_asking))
    }

    /// Asks one node after the other for the slots, unless the owner is known.
    pub(crate) async fn ask_owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        if let Some(address) = self.owner(slot) {
            return Ok(address);
        }
        let question = [redis::cmd("CLUSTER").arg("SLOTS").to_owned()];
        let time = time.min(SLOTS_TIME);
        let mut last = None;
        for node in self.candidates() {
            match self.send_to(&node, false, &question, time).await {
                Ok(slots) if self.learn(&slots, &node) => break,
                Ok(_) => {}
                Err(error) => last = Some(error),
            }
        }
        // A slot of nobody's is told by any node.
        let nobody = || (redis::ErrorKind::Io, "no node knows the slots").into();
        self.owner(slot).ok_or_else(|| last.unwrap_or_else(nobody))
    }

    /// The node of a slot. `None` if nobody has been asked since the last failure.
    pub(crate) fn owner(&self, slot: u16) -> Option<Address> {
        let inner = self.inner();
        let mut ranges = inner.ranges.iter();
        let found = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(.., address)| address.clone())
    }

    /// The nodes to ask for the slots, each time with another one first.
    fn candidates(&self) -> Vec<Address> {
        let mut inner = self.inner();
        inner.questions = inner.questions.wrapping_add(1);
        let all: BTreeSet<_> = inner.nodes.keys().chain(&self.seeds).cloned().collect();
        let mut candidates: Vec<_> = all.into_iter().collect();
        let turn = inner.questions.checked_rem(candidates.len());
        candidates.rotate_left(turn.unwrap_or(0));
        candidates
    }

    /// Reads the reply to CLUSTER SLOTS, which `asked` gave. False if it names no node.
    fn learn(&self, slots: &Value, asked: &Address) -> bool {
        let slots = slots.as_sequence().unwrap_or_default().iter();
        let ranges: Vec<_> = slots.filter_map(|range| read_range(range, asked)).collect();
        // Also a node that is not used yet may be asked for the slots.
        let is_known = ranges.iter().all(|(.., node)| self.node(node).is_ok());
        if ranges.is_empty() || !is_known {
            return false;
        }
        let mut inner = self.inner();
        let is_named = |node: &Address| ranges.iter().any(|(.., named)| named == node);
        inner.nodes.retain(|node, _| is_named(node));
        inner.ranges = ranges;
        true
    }

    /// Remembers where a slot is. True if that is new.
    fn has_moved(&self, slot: u16, address: &Address) -> bool {
        let is_new = self.owner(slot).as_ref() != Some(address);
        let ranges = &mut self.inner().ranges;
        ranges.retain(|(first, last, _)| (*first, *last) != (slot, slot));
        ranges.insert(0, (slot, slot, address.clone()));
        is_new
    }

    fn inner(&self) -> MutexGuard<'_, Inner<N>> {
        locked(&self.inner)
    }
}

fn read_range(range: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let [Value::Int(first), Value::Int(last), primary, ..] = range.as_sequence()? else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_sequence()? else {
        return None;
    };
    let node = (named(text(host), asked), u16::try_from(*port).ok()?);
    Some((
        u16::try_from(*first).ok()?,
        u16::try_from(*last).ok()?,
        node,
    ))
}

/// A node that does not know its own name means the one that was asked for.
fn named(host: Option<&str>, asked: &Address) -> String {
    let host = host.filter(|host| !matches!(*host, "" | "?"));
    host.unwrap_or(&asked.0).to_owned()
}

/// The slot that a node sends elsewhere, the node that it names, and whether to say ASKING there.
fn redirection(from: &Address, error: &RedisError) -> Option<(u16, Address, bool)> {
    let (address, slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let node = (named(Some(host), from), port.parse().ok()?);
    Some((slot, node, error.code() == Some("ASK")))
}

/// Whether another node may have the slots of the one that answered so.
fn is_stale(error: &RedisError) -> bool {
    is_unanswered(error) || has_code(error, &["READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING"])
}

/// The slot of commands of this crate's, which they share.
pub(crate) fn slot_of_commands(commands: &[Cmd]) -> u16 {
    let words = commands.iter().flat_map(Cmd::args_iter);
    let mut words = words.map(|word| match word {
        Arg::Simple(word) => word,
        _ => &[],
    });
    let before_key = match words.next() {
        Some(b"LOCK.MACQUIRE") => 1,
        Some(b"EVAL") => 2,
        _ => 0,
    };
    slot_of(words.nth(before_key).unwrap_or_default())
}

pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) & 0x3fff
}

/// A text whose slot this is. Any key of the slot shares it, whatever bytes the key has.
pub(crate) fn tag_of(slot: u16) -> String {
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
mod tests;
