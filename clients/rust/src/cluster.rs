//! The slots of a cluster, and its nodes.

use std::collections::{HashMap, HashSet, hash_map::Entry};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError, RedisResult, Value};

use crate::command::hash_tag;
use crate::driver::{Driver, locked};
use crate::error::Result;
use crate::replies::{has_code, is_unanswered};
use crate::server::{Address, Batch, Source, answered, item, with_address};

/// The time for the slots of a cluster. The next node is asked after it.
const SLOTS_TIME: Duration = Duration::from_secs(1);

/// How often one command follows a redirection.
const REDIRECTIONS: usize = 5;

/// Which node has which slot, as far as it is known, and how to ask it.
pub(crate) struct Cluster<D: Driver> {
    /// Credentials, TLS and the like are those of the first address.
    like: ConnectionInfo,
    seeds: Vec<Address>,
    /// What redirections have taught comes first.
    ranges: Mutex<Vec<(u16, u16, Address)>>,
    nodes: Mutex<HashMap<Address, Arc<D::Peer>>>,
    hub: D::Hub,
}

impl<D: Driver> Cluster<D> {
    pub(crate) fn new(infos: Vec<ConnectionInfo>, hub: D::Hub) -> Result<Self> {
        let seeds = infos.iter().filter_map(|info| match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        });
        let seeds: Vec<_> = seeds.collect();
        let like = infos.first().filter(|_| !seeds.is_empty());
        let kind = redis::ErrorKind::InvalidClientConfig;
        let none = RedisError::from((kind, "a cluster needs the address of a node"));
        Ok(Self {
            like: like.ok_or(none)?.clone(),
            seeds,
            ranges: Mutex::default(),
            nodes: Mutex::default(),
            hub,
        })
    }

    pub(crate) fn source(&self, address: &Address) -> RedisResult<Source> {
        Client::open(with_address(&self.like, address)).map(Source::Server)
    }

    fn node(&self, address: &Address) -> RedisResult<Arc<D::Peer>> {
        Ok(match locked(&self.nodes).entry(address.clone()) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => new
                .insert(Arc::new(D::peer(self.source(address)?, None)))
                .clone(),
        })
    }

    /// Ends the connections. Those that are needed are made anew.
    pub(crate) fn close(&self) {
        locked(&self.nodes).clear();
    }

    /// Sends commands to the node of their key, and on to where that one sends them. Returns the node
    /// that has answered, too.
    pub(crate) async fn send(&self, batch: Batch<'_>) -> (RedisResult<Value>, Option<Address>) {
        let mut to = match self.owner(slot_of(batch.key), batch.time).await {
            Ok(owner) => (owner, false),
            Err(error) => return (Err(error), None),
        };
        let mut redirections = 0..REDIRECTIONS;
        loop {
            let error = match self.send_to(&to, batch).await {
                Ok(answer) => return (Ok(answer), Some(to.0)),
                Err(error) => error,
            };
            match self.learn_from(&to.0, &error) {
                Some(next) if redirections.next().is_some() => to = next,
                _ => return (Err(error), None),
            }
        }
    }

    /// Sends commands to a node, with ASKING before each if that is so.
    async fn send_to(&self, to: &(Address, bool), batch: Batch<'_>) -> RedisResult<Value> {
        let node = self.node(&to.0)?;
        if !to.1 {
            return D::send(&node, batch).await;
        }
        // It answers although their slot has not arrived there yet.
        let pair = |command: &Cmd| [redis::cmd("ASKING"), command.clone()];
        let commands: Vec<_> = batch.commands.iter().flat_map(pair).collect();
        let commands = &commands;
        let sent = D::send(&node, Batch { commands, ..batch }).await?;
        let answers = sent.into_sequence().unwrap_or_default();
        answered(answers.into_iter().skip(1).step_by(2).collect())
    }

    /// Where a node sends a command, and whether to say ASKING there. `None` if that is nowhere.
    pub(crate) fn learn_from(&self, node: &Address, error: &RedisError) -> Option<(Address, bool)> {
        if is_stale(error) {
            // The nodes are asked again.
            locked(&self.ranges).clear();
        }
        let next = redirection(node, error);
        // With ASK only the key has arrived where a slot is on its way to, or is not there yet.
        if let Some((slot, next, false)) = &next {
            self.moves(*slot, next);
        }
        D::has_failed(&self.hub, node, error);
        next.map(|(_, next, is_asking)| (next, is_asking))
    }

    /// The node of a slot. The nodes are asked for it after a failure.
    pub(crate) async fn owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        match self.known_owner(slot) {
            Some(address) => Ok(address),
            None => D::in_time(time, self.ask_owner(slot, time)).await,
        }
    }

    /// Asks one node after the other for the slots, unless another caller has.
    async fn ask_owner(&self, slot: u16, time: Duration) -> RedisResult<Address> {
        let _turn = D::turn(&self.hub).await;
        let question = [redis::cmd("CLUSTER").arg("SLOTS").take()];
        let question = Batch::of(&[], &question, time.min(SLOTS_TIME));
        let mut last = (redis::ErrorKind::Io, "no node knows the slots").into();
        let mut all: HashSet<_> = locked(&self.nodes).keys().cloned().collect();
        all.extend(self.seeds.iter().cloned());
        // Each set has another order, so that no node is always asked first.
        for to in all.into_iter().map(|node| (node, false)) {
            if self.known_owner(slot).is_some() {
                break;
            }
            match self.send_to(&to, question).await {
                Ok(slots) => self.learn(&slots, &to.0),
                Err(error) => last = error,
            }
        }
        self.known_owner(slot).ok_or(last)
    }

    fn known_owner(&self, slot: u16) -> Option<Address> {
        let ranges = locked(&self.ranges);
        let mut ranges = ranges.iter();
        let found = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        found.map(|(.., address)| address.clone())
    }

    /// Reads the reply to CLUSTER SLOTS, which `asked` gave. One that has just been reset knows none.
    fn learn(&self, slots: &Value, asked: &Address) {
        let slots = slots.as_sequence().unwrap_or_default().iter();
        let ranges: Vec<_> = slots.filter_map(|range| read_range(range, asked)).collect();
        // Also a node that is not used yet may be asked for the slots.
        let is_known = ranges.iter().all(|(.., node)| self.node(node).is_ok());
        if is_known && !ranges.is_empty() {
            let is_named = |node: &Address| ranges.iter().any(|(.., named)| named == node);
            locked(&self.nodes).retain(|node, _| is_named(node));
            *locked(&self.ranges) = ranges;
        }
    }

    /// Remembers where a slot is.
    fn moves(&self, slot: u16, address: &Address) {
        let mut ranges = locked(&self.ranges);
        ranges.retain(|(first, last, _)| (*first, *last) != (slot, slot));
        ranges.insert(0, (slot, slot, address.clone()));
    }
}

fn read_range(range: &Value, asked: &Address) -> Option<(u16, u16, Address)> {
    let primary: Value = item(range, 2)?;
    let host: Option<String> = item(&primary, 0);
    let node = (named(host.as_deref(), asked), item(&primary, 1)?);
    Some((item(range, 0)?, item(range, 1)?, node))
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
