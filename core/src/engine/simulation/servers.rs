//! Two and three servers: engines joined by replication, with faults, and clients that believe.
//!
//! Each server is a [`Node`] with clocks of its own, a role, a file and perhaps a link to its
//! primary. Links carry the bytes of effects, and lose what was sent and not yet received. Servers
//! crash with loss, pause, are promoted while the old primary lives on, and come back.
//!
//! Two kinds of oracles judge each step:
//! - **The rules of each server** ([`rules`]): by its own clock no two holds conflict, fences rise,
//!   a hold leaves only by its owner or its deadline, and only a primary decides.
//! - **The beliefs of the clients** ([`clients`], [`breaches`]): a client believes that it holds
//!   from the reply to the end of a lease that counts from the sending of its request. Two
//!   conflicting beliefs at one time are a *breach*.
//!
//! A single server, and a failover that loses no record, must have no breach. A failover that
//! loses records must have one where there is no guard ([`guarded`]).

mod breaches;
mod changing;
mod clients;
mod clock;
mod dice;
mod exhaustive;
mod faults;
mod five;
mod guarded;
mod histories;
mod lingering;
mod liveness;
mod replication;
mod rules;
mod server;
mod wandering;
mod worlds;

use std::collections::BTreeSet;

use super::node::{Node, Snapshot};
use super::{at, Client as RequestId, Event, Keys, Limits, Place, Request, FIRST_OF_CHANNELS};
use crate::engine::guard;
use crate::lock::Mode;
use clients::Client;
use clock::Clocks;
use server::{Arrival, Link, Server, State};

/// One step of a history. Servers and clients have numbers from 0 on.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client sends a request to a server, if it waits for no other reply.
    Ask(usize, usize, What),
    /// The client hears the reply, if there is one.
    Hear(usize),
    /// The client gives up the request. Whether the server learns of it: if not, the server counts
    /// the reply as heard.
    Lose(usize, bool),
    /// All connections of a client break, and everybody learns of it at once.
    Disconnect(usize),
    /// Time goes on, in milliseconds, and the timers of all servers run.
    Tick(u64),
    /// Time goes on, and the timers are late.
    Pass(u64),
    /// A replica receives so many of the records that were sent to it.
    Receive(usize, usize),
    /// A primary reads what its replicas have acknowledged.
    HearAcks(usize),
    /// All links deliver what was sent, and all primaries read what was acknowledged.
    Flow,
    /// The link of a replica breaks, and what is on its way is lost.
    Cut(usize),
    /// The same, and the primary does not notice.
    CutUnseen(usize),
    /// A primary notices which links are broken.
    Notice(usize),
    /// A replica follows a primary: from where it was, or by a full copy.
    Follow(usize, usize),
    Crash(usize),
    /// A server starts again. It may start as a primary.
    Restart(usize, Disk, bool),
    /// SIGSTOP and SIGCONT. Clocks go on, and requests pile up.
    Pause(usize),
    Resume(usize),
    Promote(usize),
    /// A primary becomes a replica of another one.
    Demote(usize, usize),
    /// The wall clock of a server is set, by so many milliseconds.
    SetClock(usize, i64),
    /// A planned failover that loses nothing.
    HandOver(usize),
    /// The primary dies when this replica has received everything, which is promoted then.
    FailOver(usize),
    /// CONFIG SET at all servers. One that is paused reads it later, and one that is down finds it
    /// when it starts.
    Set(guard::Settings),
}

/// What a server finds when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    /// A file that lacks so many of the newest changes.
    Lacks(usize),
    Empty,
}

/// A request.
#[derive(Clone, Copy, Debug)]
enum What {
    Take {
        name: u8,
        mode: Mode,
        ttl: u64,
        limits: Limits,
        keep: u32,
        /// For how long the hold stays when the connection is lost, if it ends with that.
        linger: Option<u64>,
    },
    /// The locks 0 and 1 at once, both of them for itself alone.
    TakeBoth {
        ttl: u64,
        limits: Limits,
        keep: u32,
    },
    Release(u8),
    Renew(u8, u64),
    Check(u8),
}

impl What {
    fn names(self) -> std::ops::Range<u8> {
        match self {
            Self::Take { name, .. }
            | Self::Release(name)
            | Self::Renew(name, _)
            | Self::Check(name) => name..name + 1,
            Self::TakeBoth { .. } => 0..2,
        }
    }

    fn name(self) -> u8 {
        self.names().start
    }

    /// The mode that it asks for.
    fn mode(self) -> Mode {
        match self {
            Self::Take { mode, .. } => mode,
            _ => Mode::Exclusive,
        }
    }

    fn keys(self) -> Keys {
        let mut all = self.names().map(|name| (at(0, name), self.mode()));
        Keys([all.next(), all.next(), None])
    }

    /// Whether a channel is to be told of the grant.
    fn is_channel(self) -> bool {
        match self {
            Self::Take { limits, .. } | Self::TakeBoth { limits, .. } => limits.is_channel(),
            _ => false,
        }
    }

    fn request(self, token: u8) -> Request {
        match self {
            Self::Take {
                mode,
                ttl,
                limits,
                keep,
                ..
            } => Request::Take {
                mode,
                token,
                ttl,
                limits,
                keep,
            },
            Self::TakeBoth { ttl, limits, keep } => Request::Take {
                mode: Mode::Exclusive,
                token,
                ttl,
                limits,
                keep,
            },
            Self::Release(_) => Request::Release(token),
            Self::Renew(_, ttl) => Request::Renew(token, ttl),
            Self::Check(_) => Request::Check(token),
        }
    }
}

/// The client whose command runs.
#[derive(Clone, Copy, Debug)]
struct Asker {
    id: RequestId,
    token: u8,
}

/// What stays the same in a history.
#[derive(Clone, Debug)]
struct Settings {
    /// The clocks of each server. The first one is the primary at the beginning.
    clocks: Vec<Clocks>,
    clients: usize,
    /// Whether replies reach clients at once.
    hears_at_once: bool,
    /// Whether no fault may lose a record.
    loses_nothing: bool,
    /// Whether a server answers its blocked clients when it becomes a replica. Valkey 9.1 does
    /// not.
    tells_blocked: bool,
    /// Whether a timer that is set for now runs before the next request, as it does where requests
    /// come in different turns of the event loop.
    timer_is_prompt: bool,
    /// Whether a breach is a failure.
    must_be_safe: bool,
    /// The guard of each server.
    guard: guard::Settings,
    /// Whether old primaries stop within the slack of the guard after a promotion, as the mode
    /// `failover` demands.
    old_primaries_stop: bool,
    /// What clients do wrong.
    careless: Option<Careless>,
}

/// What a client does wrong, to see that it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Careless {
    /// It counts a lease from the reply, and not from the sending of the request.
    CountsFromReply,
    /// It counts on the whole lease, though its clock may be slow.
    WithoutMargin,
}

/// What was played, for the report of a test.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    steps: u64,
    grants: u64,
    believed: u64,
    promotions: u64,
    crashes: u64,
    full_copies: u64,
    continued: u64,
    records_lost: u64,
    disconnected: u64,
    breaches: u64,
    /// Fences that did not rise over a failover, because the one before was ahead of its clock.
    overtaken: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.grants += other.grants;
        self.believed += other.believed;
        self.promotions += other.promotions;
        self.crashes += other.crashes;
        self.full_copies += other.full_copies;
        self.continued += other.continued;
        self.records_lost += other.records_lost;
        self.disconnected += other.disconnected;
        self.breaches += other.breaches;
        self.overtaken += other.overtaken;
    }
}

/// All servers and all clients.
#[derive(Clone)]
struct Cluster {
    settings: Settings,
    /// The time that nobody can read.
    true_us: u64,
    servers: Vec<Server>,
    clients: Vec<Client>,
    last_request: RequestId,
    last_token: u8,
    last_history: u64,
    last_connection: u64,
    /// The largest fence that any server gave while it followed its clock, and the largest of all.
    given_by_clock: u64,
    given: u64,
    /// The keys that two clients believe they hold.
    breached: BTreeSet<u8>,
    /// The server that was promoted last.
    newest: usize,
    tally: Tally,
}

impl Cluster {
    fn new(settings: Settings) -> Self {
        let n = settings.clocks.len();
        let servers = (0..n).map(|s| Server::new(settings.clocks[s], s == 0));
        let mut cluster = Self {
            servers: servers.collect(),
            clients: (0..settings.clients)
                .map(|n| Client::new(n, settings.careless))
                .collect(),
            settings,
            true_us: 0,
            last_request: 0,
            last_token: 0,
            last_history: 0,
            last_connection: 0,
            given_by_clock: 0,
            given: 0,
            breached: BTreeSet::new(),
            newest: 0,
            tally: Tally::default(),
        };
        for s in 0..n {
            cluster.begin(s, &Snapshot::default());
        }
        for s in 1..n {
            cluster.follow(s, 0);
            cluster.receive(s, usize::MAX);
        }
        cluster.tally = Tally::default();
        cluster
    }

    fn step(&mut self, step: Step) {
        self.tally.steps += 1;
        match step {
            Step::Ask(c, s, what) => self.ask(c, s, what),
            Step::Hear(c) => self.hear(c),
            Step::Lose(c, server_knows) => self.lose(c, server_knows),
            Step::Disconnect(c) => self.disconnect(c),
            Step::Tick(ms) => {
                self.pass(ms);
                (0..self.servers.len()).for_each(|s| self.run_timer(s));
            }
            Step::Pass(ms) => self.pass(ms),
            Step::Receive(s, n) => self.receive(s, n),
            Step::Flow => self.flow(),
            Step::HearAcks(s) => self.servers[s].hear_acks(),
            Step::Cut(s) => self.cut(s, true),
            Step::CutUnseen(s) => self.cut(s, false),
            Step::Notice(s) => self.notice(s),
            Step::Follow(s, to) => self.follow(s, to),
            Step::Crash(s) => self.crash(s),
            Step::Restart(s, disk, is_primary) => self.restart(s, disk, is_primary),
            Step::Pause(s) => self.pause(s),
            Step::Resume(s) => self.resume(s),
            Step::Promote(s) if !self.settings.loses_nothing => self.promote(s),
            Step::Demote(s, to) if !self.settings.loses_nothing => self.demote(s, to),
            Step::Promote(_) | Step::Demote(..) => {}
            Step::SetClock(s, ms) => self.servers[s].clocks.wall_ahead_us += ms * 1_000,
            Step::HandOver(to) => self.change_primary(to, false),
            Step::FailOver(to) => self.change_primary(to, true),
            Step::Set(guard) => self.set(guard),
        }
        if self.settings.hears_at_once {
            (0..self.clients.len()).for_each(|c| self.hear(c));
        }
        self.check_replicas();
        self.look_for_breaches();
    }

    /// Lets a server do something, and deals with what comes of it. `asker` is the client whose
    /// command it is.
    fn turn(&mut self, s: usize, asker: Option<Asker>, run: impl FnOnce(&mut Node)) {
        let server = &mut self.servers[s];
        assert_eq!(server.state, State::Up, "a server that does not run");
        server.set_clocks(self.true_us);
        run(&mut server.node);
        let mut events = server.node.memory.events.take();
        self.find_listeners(s, &mut events);
        let server = &mut self.servers[s];
        let sent = server.node.take_sent();
        self.check_sent(s, asker.map(|asker| asker.token), &sent);
        self.servers[s].check_answers(asker.map(|asker| asker.id), &events);
        self.answer(s, events);
        if sent.is_empty() {
            return;
        }
        if sent.iter().any(|record| record.change.is_of_key()) {
            self.servers[s].save();
        }
        for record in sent {
            self.servers[s].history.push(record.clone());
            for other in &mut self.servers {
                if let Some(link) = other.link.as_mut().filter(|link| link.to == s) {
                    link.queue.push_back(server::Item::Record(record.clone()));
                }
            }
        }
    }

    fn run_timer(&mut self, s: usize) {
        if self.servers[s].state == State::Up {
            self.turn(s, None, |node| _ = node.run_timer());
        }
    }
}
