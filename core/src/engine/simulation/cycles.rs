//! Cycles of waits against two oracles: all short histories, and long random ones.
//!
//! One oracle is a naive graph: all edges of all waits, made from flat lists, and a walk from the
//! token that asks. It says whether the wait would close a cycle, and how long a shortest one is.
//!
//! The other one knows no edges. It lets the wait happen and plays on: each token that waits for
//! nothing ends its holds, each absent one asks again, until nothing changes. Those who wait then
//! wait for ever. So a wait may be let in only if nobody does, and may be refused only if somebody
//! does.

mod histories;
mod oracles;

use std::collections::{BTreeMap, BTreeSet};

use super::drivers::keep;
use super::node::{Node, Value};
use super::{at, Client, Event, Keys, Limits, Place, Request};
use crate::engine::Count;
use crate::lock::{Mode, TokenText};
use crate::wait::Listener;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A token asks for a key.
    Ask(u8, u8, Mode, How),
    /// A token asks for two keys at once.
    AskBoth(u8, [(u8, Mode); 2], How),
    Release(u8, u8),
    /// The listeners of a token at a key go away.
    Leave(u8, u8),
    Delete(u8),
    /// The lock under the first key comes to the second one.
    Rename(u8, u8),
    /// The graces of all absent places end.
    EndGraces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    NoWait,
    Block,
    /// With KEEP, without BLOCK.
    Keep,
    BlockKeep,
    /// By the token's channel, which always hears.
    Notify,
}

impl How {
    /// The same, but it waits.
    fn waiting(self) -> Self {
        match self {
            Self::Notify => Self::Notify,
            _ => Self::Block,
        }
    }
}

/// No lease ends.
const TTL_MS: u64 = 1 << 40;

const KEEP_MS: u32 = 3_600_000;

/// The time of a step. The server logs a cycle each time.
const STEP_US: u64 = 200_000;

#[derive(Clone)]
struct World {
    node: Node,
    /// How many keys there are.
    keys: u8,
    last_client: Client,
    /// How many waits were refused, by the length of the cycle.
    refused: BTreeMap<usize, u64>,
}

/// Names can be read in the log.
fn place(key: u8) -> Place {
    at(0, b'0' + key)
}

fn name(token: u8) -> u8 {
    b'a' + token
}

fn number(token: TokenText<'_>) -> u8 {
    token.as_bytes()[0] - b'a'
}

impl World {
    fn new(keys: u8) -> Self {
        let node = Node::new(true);
        node.memory.linger_ms.set(None);
        node.memory.lines.replace(Some(Vec::new()));
        let world = Self {
            node,
            keys,
            last_client: 0,
            refused: BTreeMap::new(),
        };
        world.detect(true);
        world
    }

    fn detect(&self, detects_deadlocks: bool) {
        let mut scene = self.node.memory.scene.get();
        scene.detects_deadlocks = detects_deadlocks;
        self.node.memory.scene.set(scene);
    }

    fn pass(&self, us: u64) {
        let mut scene = self.node.memory.scene.get();
        scene.mono_us += us;
        self.node.memory.scene.set(scene);
    }

    fn step(&mut self, op: Op) {
        self.pass(STEP_US);
        match op {
            Op::Ask(token, key, mode, how) => self.ask(token, &[(key, mode)], how),
            Op::AskBoth(token, both, how) => self.ask(token, &both, how),
            Op::Release(token, key) => self.release(token, key),
            Op::Leave(token, key) => self.leave(token, key),
            Op::Delete(key) => {
                self.node.look_up(place(key));
                self.node.delete(place(key));
            }
            Op::Rename(from, to) => {
                if from != to && self.node.look_up(place(from)) {
                    self.node.rename(place(from), place(to));
                }
            }
            Op::EndGraces => self.pass(2_000 * u64::from(KEEP_MS)),
        }
        self.settle();
    }

    /// The timer runs, and all replies arrive.
    fn settle(&mut self) {
        self.node.run_timer();
        let in_flight = self.node.memory.in_flight.borrow();
        let clients: Vec<Client> = in_flight.iter().map(|(client, _)| *client).collect();
        drop(in_flight);
        for client in clients {
            self.node.end_delivery(client, true);
        }
        self.node.settle();
        self.node.memory.events.take();
        assert!(self.node.machine.registry.is_tight());
        let counts = self.node.memory.counts.borrow();
        assert_eq!(counts[Count::DeadlockOverBudget as usize], 0);
    }

    /// What a request gets at once.
    fn request(&mut self, token: u8, keys: &[(u8, Mode)], how: How) -> Event {
        let limits = match how {
            How::NoWait | How::Keep => Limits::NoWait,
            How::Block | How::BlockKeep => Limits::Forever,
            How::Notify => Limits::Notify,
        };
        let keep_ms = match how {
            How::Keep | How::BlockKeep => KEEP_MS,
            _ => 0,
        };
        let request = keep(keys[0].1, name(token), TTL_MS, limits, keep_ms);
        let client = self.next_client();
        self.node.memory.events.take();
        match keys {
            [(key, _)] => self.node.command(client, place(*key), request),
            _ => {
                let mut all = keys.iter().map(|(key, mode)| (place(*key), *mode));
                let keys = Keys([all.next(), all.next(), None]);
                self.node.take_all(client, keys, request);
            }
        }
        let events = self.node.memory.events.take();
        let mut own = events.iter().filter(|(to, _)| *to == client);
        own.next().expect("a reply").1
    }

    fn next_client(&mut self) -> Client {
        self.last_client += 1;
        self.last_client
    }

    fn ask(&mut self, token: u8, keys: &[(u8, Mode)], how: How) {
        if how == How::NoWait {
            self.request(token, keys, how);
            return;
        }
        let (before, mut waited) = (self.clone(), self.clone());
        waited.detect(false);
        let waits = waited.request(token, keys, how.waiting()) == Event::Waits;
        let listens = keys.iter().any(|(key, _)| before.listens(token, *key));
        let reply = self.request(token, keys, how);
        // It does not wait, or leaves nothing at a place at which others of its token wait.
        if !waits || how == How::Keep && listens {
            return;
        }
        let cycle = (reply == Event::Deadlock).then(|| self.logged_cycle());
        let say = format!("{token} asks {keys:?} {how:?}: {reply:?} {cycle:?}");
        before.compare(waited, token, cycle.as_deref(), &say);
        if let Some(cycle) = cycle {
            *self.refused.entry(cycle.len()).or_default() += 1;
        }
    }

    fn listens(&self, token: u8, key: u8) -> bool {
        let mut waiters = self.node.machine.registry.waiters(0, &[place(key).name]);
        waiters.any(|waiter| number(waiter.token) == token && waiter.listener.is_some())
    }

    /// Each wait of the cycle that was logged last: its token and its key.
    fn logged_cycle(&self) -> Vec<(u8, u8)> {
        let mut lines = self.node.memory.lines.borrow_mut();
        let lines = lines.as_mut().map(std::mem::take).unwrap();
        let wait = |line: &String| {
            let (_, wait) = line.split_once(": token ").expect("a wait");
            let (token, key) = wait.split_once(" waits for ").expect("a key");
            (token.as_bytes()[0] - b'a', key.as_bytes()[0] - b'0')
        };
        lines.iter().map(wait).collect()
    }

    fn release(&mut self, token: u8, key: u8) {
        let client = self.next_client();
        let release = Request::Release(name(token));
        self.node.command(client, place(key), release);
    }

    fn leave(&mut self, token: u8, key: u8) {
        let waiters = self.node.machine.registry.waiters(0, &[place(key).name]);
        let own = waiters.filter(|waiter| number(waiter.token) == token);
        let clients = own.filter_map(|waiter| match waiter.listener {
            Some(Listener::Client(client)) => Some(*client),
            _ => None,
        });
        let clients: Vec<Client> = clients.collect();
        for client in clients {
            self.node.kill_waiter(client, true);
        }
    }

    fn holders(&self, key: u8) -> Vec<(u8, Mode)> {
        let values = self.node.values();
        let Some(Value::Lock(lock, _)) = values.get(&place(key)) else {
            return Vec::new();
        };
        let holds = lock.holds().into_iter();
        holds
            .map(|(token, mode, _)| (number(token), mode))
            .collect()
    }
}
