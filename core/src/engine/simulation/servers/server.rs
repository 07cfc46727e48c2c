//! One server: a node with clocks, a role, a file and a link to its primary.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU64;

use super::clock::Clocks;
use super::rules::Ledger;
use super::{Keys, Node, Request, RequestId, Snapshot};
use crate::engine::guard::quorum::{Replica, Replicas};
use crate::engine::guard::{self, GuardEvent};
use crate::engine::simulation::node::Record;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Stopped by a signal.
    Paused,
    Down,
}

/// How a request comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) number: NonZeroU64,
    /// LINGER.
    pub(super) linger: Option<u64>,
}

/// What comes from a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arrival {
    Request(RequestId, Keys, Request, Connection),
    /// It is gone before it has heard the reply.
    Gone(RequestId),
    /// A connection is lost.
    Lost(NonZeroU64),
    /// It has received the reply.
    Heard(RequestId),
    /// CONFIG SET of an operator.
    Settings(guard::Settings),
}

/// What is sent to a replica.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A full copy, and where it is in which history.
    Whole(Snapshot, u64, u64),
    /// The stream goes on where the replica was.
    Continue(u64),
    Record(Record),
}

/// A replica's link to its primary.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) to: usize,
    /// The number of the connection.
    pub(super) connection: u64,
    /// What is sent and not yet received.
    pub(super) queue: VecDeque<Item>,
}

/// A replica, as its primary sees it.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    /// The number of the connection.
    pub(super) connection: u64,
    pub(super) replica: usize,
    /// What it has acknowledged, and the primary has not read.
    pub(super) inbox: VecDeque<u64>,
    pub(super) acked: u64,
}

/// How many records a server keeps for replicas that come back.
const BACKLOG: usize = 40;

/// How many old states of the file there may be.
const FILES: usize = 6;

/// The address of a server.
pub(super) fn name_of(s: usize) -> Box<[u8]> {
    [s as u8].into()
}

/// Where a server is in the stream of its primary, or in its own.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) id: u64,
    pub(super) offset: u64,
    /// The history that it was in before its promotion, and up to where.
    before: Option<(u64, u64)>,
    /// The newest records.
    backlog: VecDeque<Record>,
}

impl History {
    pub(super) fn begin(id: u64, offset: u64) -> Self {
        Self {
            id,
            offset,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, record: Record) {
        self.offset += 1;
        self.backlog.push_back(record);
        if self.backlog.len() > BACKLOG {
            self.backlog.pop_front();
        }
    }

    /// A promotion: what comes from here on is its own.
    pub(super) fn branch(&mut self, id: u64) {
        self.before = Some((self.id, self.offset));
        self.id = id;
    }

    /// The records that a replica lacks which is there in that history. `None` if it needs a full
    /// copy.
    pub(super) fn from(&self, id: u64, offset: u64) -> Option<Vec<Record>> {
        let is_known = id == self.id
            || self
                .before
                .is_some_and(|(before, up_to)| id == before && offset <= up_to);
        let lacks = self.offset.checked_sub(offset)?;
        let skipped = self.backlog.len().checked_sub(lacks as usize)?;
        is_known.then(|| self.backlog.iter().skip(skipped).cloned().collect())
    }
}

/// A server.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) node: Node,
    pub(super) clocks: Clocks,
    pub(super) state: State,
    /// Whether it is a primary. It is in the server's own settings, and outlives a crash.
    pub(super) is_primary: bool,
    pub(super) history: History,
    pub(super) link: Option<Link>,
    /// Those that follow it, as far as it knows.
    pub(super) attached: Vec<Attached>,
    /// The primary that it followed up to its promotion, until that has come back.
    pub(super) came_after: Option<usize>,
    /// States of the file, the newest last.
    pub(super) files: VecDeque<Snapshot>,
    /// What has come while it was paused.
    pub(super) arrivals: VecDeque<Arrival>,
    /// The requests whose clients are blocked.
    pub(super) blocked: BTreeSet<RequestId>,
    pub(super) ledger: Ledger,
    /// When it has to stop, because another server was promoted.
    pub(super) stops_us: Option<u64>,
    /// Whether it has stood still since before that.
    pub(super) stands_still: bool,
}

impl Server {
    pub(super) fn new(clocks: Clocks, is_primary: bool) -> Self {
        Self {
            node: Node::of_several(),
            clocks,
            state: State::Up,
            is_primary,
            history: History::default(),
            link: None,
            attached: Vec::new(),
            came_after: None,
            files: VecDeque::new(),
            arrivals: VecDeque::new(),
            blocked: BTreeSet::new(),
            ledger: Ledger::default(),
            stops_us: None,
            stands_still: false,
        }
    }

    pub(super) fn set_clocks(&self, true_us: u64) {
        let mut scene = self.node.memory.scene.get();
        scene.now_ms = self.clocks.wall_us(true_us) / 1_000;
        scene.mono_us = self.clocks.mono_us(true_us);
        scene.is_primary = self.is_primary;
        self.node.memory.scene.set(scene);
        self.node.memory.replicas.replace(self.replicas());
    }

    /// Its replicas, as the server lists them.
    pub(super) fn replicas(&self) -> Replicas {
        let all = self.attached.iter().map(|one| Replica {
            name: name_of(one.replica),
            acked: one.acked,
        });
        Replicas {
            offset: self.history.offset,
            all: all.collect(),
        }
    }

    /// Reads what its replicas have acknowledged.
    pub(super) fn hear_acks(&mut self) {
        for one in &mut self.attached {
            one.acked = one.inbox.drain(..).next_back().unwrap_or(one.acked);
        }
    }

    /// A replica has come or gone.
    pub(super) fn replicas_changed(&mut self, true_us: u64) {
        self.set_clocks(true_us);
        let at_us = self.node.memory.scene.get().mono_us;
        let event = GuardEvent::Replicas(self.replicas(), at_us);
        self.node.note_link(event);
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Writes the file.
    pub(super) fn save(&mut self) {
        self.files.push_back(self.node.snapshot());
        if self.files.len() > FILES {
            self.files.pop_front();
        }
    }

    /// The fence of a grant whose reply is on its way.
    pub(super) fn in_flight(&self, id: RequestId) -> Option<u64> {
        let in_flight = self.node.memory.in_flight.borrow();
        let grant = in_flight.iter().find(|(client, _)| *client == id);
        grant.map(|(_, grant)| grant.fence.get())
    }
}
