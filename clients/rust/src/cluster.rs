//! The slots of a cluster and their nodes, without I/O.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redis::{
    Arg, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult, Value,
};

use crate::command::hash_tag;
use crate::driver::{answered, locked};
use crate::error::Result;
pub(crate) use crate::info::Address;
use crate::info::unnamed;
use crate::info::{text, with_address};
use crate::replies::{has_code, is_unanswered};

/// The time for the slots of a cluster. The next node is asked after it.
const SLOTS_TIME: Duration = Duration::from_secs(1);

/// How often one command follows a redirection.
const REDIRECTIONS: usize = 5;

/// The connections to the nodes.
pub(crate) trait Nodes: Sync {
    fn send(
        &self,
        node: &Address,
        commands: &[Cmd],
        time: Duration,
    ) -> impl Future<Output = RedisResult<Value>> + Send;

    /// Whoever listens at a node is told of its failure, or that a slot has moved.
    fn has_failed(&self, _node: &Address, _error: &RedisError, _has_moved: bool) {}
}

/// Which node has which slot, as far as it is known.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Credentials, TLS and the like are those of the first address.
    like: ConnectionInfo,
    seeds: Vec<Address>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What redirections have taught comes first.
    ranges: Vec<(u16, u16, Address)>,
    /// Those to ask for the slots. The seeds are among them.
    nodes: Vec<Address>,
    questions: usize,
}

impl Topology {
    pub(crate) fn new<A: IntoConnectionInfo>(
        addresses: impl IntoIterator<Item = A>,
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
            inner: Mutex::new(Inner {
                nodes: seeds.clone(),
                ranges: Vec::new(),
                questions: 0,
            }),
            seeds,
        })
    }

    /// How to connect to a node.
    pub(crate) fn info(&self, (host, port): &Address) -> ConnectionInfo {
        with_address(&self.like, host, *port)
    }

    /// Sends commands to the node of their slot, as far as that is known, and on to where that one
    /// sends them. Returns the node that has answered, too.
    pub(crate) async fn send(
        &self,
        nodes: &impl Nodes,
        owner: Address,
        commands: &[Cmd],
        time: Duration,
    ) -> RedisResult<(Value, Address)> {
        let mut node = owner;
        let mut answer = nodes.send(&node, commands, time).await;
        for _ in 0..REDIRECTIONS {
            let Err(error) = &answer else {
                break;
            };
            let Some((next, is_asking)) = self.learn_from(nodes, &node, error) else {
                break;
            };
            node = next;
            answer = match is_asking {
                true => {
                    let sent = nodes.send(&node, &behind_asking(commands), time).await;
                    sent.and_then(without_asking)
                }
                false => nodes.send(&node, commands, time).await,
            };
        }
        answer.map(|answer| (answer, node))
    }

    /// Where a node sends a command, and whether to say ASKING there. `None` if that is nowhere.
    pub(crate) fn learn_from(
        &self,
        nodes: &impl Nodes,
        node: &Address,
        error: &RedisError,
    ) -> Option<(Address, bool)> {
        if is_stale(error) {
            self.forget();
        }
        let next = redirection(node, error);
        let has_moved = next.as_ref().is_some_and(|(slot, next, is_asking)| {
            // Only the key has arrived where a slot is on its way to, or is not there yet.
            !is_asking && self.has_moved(*slot, next)
        });
        nodes.has_failed(node, error, has_moved);
        next.map(|(_, next, is_asking)| (next, is_asking))
    }

    /// Asks one node after the other for the slots, unless the owner is known.
    pub(crate) async fn ask_owner(
        &self,
        nodes: &impl Nodes,
        slot: u16,
        time: Duration,
    ) -> RedisResult<Address> {
        if let Some(address) = self.owner(slot) {
            return Ok(address);
        }
        let question = [redis::cmd("CLUSTER").arg("SLOTS").to_owned()];
        let time = time.min(SLOTS_TIME);
        let mut last = None;
        for node in self.candidates() {
            match nodes.send(&node, &question, time).await {
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
        let mut candidates = inner.nodes.clone();
        let turn = inner.questions.checked_rem(candidates.len());
        candidates.rotate_left(turn.unwrap_or(0));
        candidates
    }

    /// Reads the reply to CLUSTER SLOTS, which `asked` gave. False if it names no node.
    fn learn(&self, slots: &Value, asked: &Address) -> bool {
        let slots = slots.as_sequence().unwrap_or_default().iter();
        let ranges: Vec<_> = slots.filter_map(|range| read_range(range, asked)).collect();
        if ranges.is_empty() {
            return false;
        }
        let named = ranges.iter().map(|(.., address)| address);
        let nodes: BTreeSet<_> = named.chain(&self.seeds).cloned().collect();
        let mut inner = self.inner();
        inner.nodes = nodes.into_iter().collect();
        inner.ranges = ranges;
        true
    }

    /// Remembers where a slot is. True if that is new.
    fn has_moved(&self, slot: u16, address: &Address) -> bool {
        let is_new = self.owner(slot).as_ref() != Some(address);
        let mut inner = self.inner();
        inner
            .ranges
            .retain(|(first, last, _)| (*first, *last) != (slot, slot));
        inner.ranges.insert(0, (slot, slot, address.clone()));
        is_new
    }

    /// Forgets the slots, but not the nodes, which are asked again.
    fn forget(&self) {
        self.inner().ranges.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
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
    let host = match text(host) {
        // A node that does not know its own name means the one that was asked for.
        None | Some("" | "?") => asked.0.clone(),
        Some(host) => host.to_owned(),
    };
    let port = u16::try_from(*port).ok()?;
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some((first, last, (host, port)))
}

/// The slot that a node sends elsewhere, the node that it names, and whether to say ASKING there.
fn redirection(from: &Address, error: &RedisError) -> Option<(u16, Address, bool)> {
    let (address, slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match host {
        "" | "?" => &from.0,
        host => host,
    };
    let node = (host.to_owned(), port.parse().ok()?);
    Some((slot, node, error.code() == Some("ASK")))
}

/// Whether another node may have the slots of the one that answered so.
fn is_stale(error: &RedisError) -> bool {
    is_unanswered(error) || has_code(error, &["READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING"])
}

/// The same commands, which the node answers although their slot has not arrived there yet.
fn behind_asking(commands: &[Cmd]) -> Vec<Cmd> {
    let pairs = commands
        .iter()
        .map(|command| [redis::cmd("ASKING"), command.clone()]);
    pairs.flatten().collect()
}

fn without_asking(answer: Value) -> RedisResult<Value> {
    let answers = answer.into_sequence().unwrap_or_default();
    answered(answers.into_iter().skip(1).step_by(2).collect())
}

/// The slot of commands of this crate's, which they share.
pub(crate) fn slot_of_commands(commands: &[Cmd]) -> u16 {
    let words = |at| commands.first()?.args_iter().nth(at);
    let word = |at| match words(at) {
        Some(Arg::Simple(word)) => word,
        _ => b"".as_slice(),
    };
    let key = match word(0) {
        b"LOCK.MACQUIRE" => word(2),
        b"EVAL" => word(3),
        _ => word(1),
    };
    slot_of(key)
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
