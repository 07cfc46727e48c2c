//! What a lock costs in a cluster of one shard and of up to six, each a primary with its replica.
//!
//! On two cores six primaries cannot serve six times as much, so throughput says nothing here. The
//! processor time of all primaries for the same work does: if it is the same, a shard with a core
//! of its own serves as much as the only shard of a small cluster.

use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{name, Fixture};
use crate::harness::{wait_for, Client, Kind, Reply, Setup};
use crate::load::{key, token, Connection, Requests};
use crate::report::{Bound, Report};
use crate::shards_counted;
use crate::stats::Spread;
use crate::Run;

const SIZES: [usize; 4] = [1, 2, 3, 6];
pub const SLOTS: usize = 16_384;
const ROUNDS: usize = 5;
const CLIENTS: usize = 50;
const PIPELINE: usize = 16;
/// A shard works this many turns on end, because a change of process on the one core costs caches
/// that a machine of its own would keep.
const STAY: usize = 10;
/// A multiple of all sizes.
const VISITS: usize = 120;
/// How long idle nodes are observed.
const IDLE: Duration = Duration::from_secs(2);
pub const OPTIONS: [&str; 10] = [
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "15000",
    "--cluster-migration-barrier",
    "100",
    "--repl-diskless-sync-delay",
    "0",
    "--save",
    "",
];

/// Primaries on the server's core, each with a replica on the core of the clients.
pub struct Shards {
    pub primaries: Vec<Fixture>,
    pub replicas: Vec<Fixture>,
    /// The keys of each shard.
    pub keys: Vec<Vec<String>>,
    /// The processor time of all primaries in a second without commands.
    idle_us: f64,
}

impl Shards {
    pub fn start(kind: Kind, size: usize, setup: &Setup) -> Self {
        let start = || Fixture::start_as(kind, setup.clone(), &OPTIONS);
        let mut primaries: Vec<_> = (0..size).map(|_| start()).collect();
        let mut replicas: Vec<_> = (0..size).map(|_| start()).collect();
        for (shard, primary) in primaries.iter_mut().enumerate() {
            give_slots(&mut primary.control, shard, size);
        }
        introduce(primaries.iter_mut().chain(&mut replicas).map(node));
        for (primary, replica) in primaries.iter_mut().zip(&mut replicas) {
            let id = primary.control.text("CLUSTER MYID");
            let line = format!("CLUSTER REPLICATE {id}");
            wait_for("a replica to know its primary", || {
                (replica.control.call(&line) == Reply::Simple("OK".into())).then_some(())
            });
        }
        for (primary, replica) in primaries.iter_mut().zip(&mut replicas) {
            replica.server.wait_until_it_follows(&primary.server);
            wait_until_it_serves(&mut primary.control);
            replica.run_on("1");
        }
        let keys = keys(&mut primaries[0], size);
        Self {
            primaries,
            replicas,
            keys,
            idle_us: 0.0,
        }
    }

    fn cpu_us(&mut self) -> f64 {
        self.primaries.iter_mut().map(Fixture::cpu_us).sum()
    }

    /// What the nodes do by the clock, work or no work. A shard that works a sixth of the time on
    /// the shared core does it six times as often for the same work.
    fn observe_idle(&mut self, quick: bool) {
        let (before, begin) = (self.cpu_us(), Instant::now());
        thread::sleep(if quick { IDLE / 20 } else { IDLE });
        self.idle_us = (self.cpu_us() - before) / begin.elapsed().as_secs_f64();
    }

    /// The processor time of the work, without that of idle nodes.
    fn cost(&mut self, work: impl FnOnce()) -> f64 {
        let (before, begin) = (self.cpu_us(), Instant::now());
        work();
        self.cpu_us() - before - self.idle_us * begin.elapsed().as_secs_f64()
    }
}

/// A node that others are to know: its port and a client.
pub fn node(node: &mut Fixture) -> (u16, &mut Client) {
    (node.server.port, &mut node.control)
}

/// Gives a primary its share of the slots in a cluster of that size.
pub fn give_slots(primary: &mut Client, shard: usize, size: usize) {
    let slots = shard * SLOTS / size..(shard + 1) * SLOTS / size;
    let words = ["CLUSTER".to_string(), "ADDSLOTS".into()].into_iter();
    let words: Vec<_> = words.chain(slots.map(|slot| slot.to_string())).collect();
    assert_eq!(primary.send(&words), Reply::Simple("OK".into()));
}

pub fn wait_until_it_serves(primary: &mut Client) {
    wait_for("the cluster to serve", || {
        let info = primary.text("CLUSTER INFO");
        info.contains("cluster_state:ok").then_some(())
    });
}

pub fn introduce<'n>(nodes: impl Iterator<Item = (u16, &'n mut Client)>) {
    let (ports, mut clients): (Vec<u16>, Vec<&mut Client>) = nodes.unzip();
    for (number, client) in clients.iter_mut().enumerate() {
        client.text(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        for port in &ports[..number] {
            client.text(&format!("CLUSTER MEET 127.0.0.1 {port}"));
        }
    }
    for client in clients {
        wait_for("the nodes to know each other", || {
            let known = client.text("CLUSTER NODES");
            let all = known.lines().count() == ports.len();
            (all && !known.contains("handshake")).then_some(())
        });
    }
}

/// As many keys for each shard, over its slots.
fn keys(any: &mut Fixture, size: usize) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new(); size];
    let mut names = (0..).map(key);
    while found.iter().any(|keys| keys.len() < CLIENTS * PIPELINE) {
        let name = names.next().expect("no end of keys");
        let slot = any.control.int(&format!("CLUSTER KEYSLOT {name}")) as usize;
        let shard = (0..size).find(|shard| slot < (shard + 1) * SLOTS / size);
        let keys = &mut found[shard.expect("a shard of each slot")];
        if keys.len() < CLIENTS * PIPELINE {
            keys.push(name);
        }
    }
    found
}

/// The clients of one shard, and what each sends in the one step and in the other.
struct Clients {
    connections: Vec<Connection>,
    steps: Vec<[Vec<u8>; 2]>,
    /// Only of hand-offs: which of two clients holds.
    holders: usize,
}

fn bytes(lines: impl IntoIterator<Item = String>) -> Vec<u8> {
    Requests::of(lines).into_bytes()
}

impl Clients {
    fn of_pairs(shard: &Fixture, keys: &[String], pipeline: usize) -> Self {
        let step = |n: usize| {
            let own = &keys[n * pipeline..(n + 1) * pipeline];
            let take = |key| format!("LOCK.ACQUIRE {key} {} 60000", token(n));
            let give = |key| format!("LOCK.RELEASE {key} {}", token(n));
            [bytes(own.iter().map(take)), bytes(own.iter().map(give))]
        };
        Self {
            connections: shard.connections(CLIENTS),
            steps: (0..CLIENTS).map(step).collect(),
            holders: 0,
        }
    }

    /// Two clients to a lock: the first has it, the second waits.
    fn of_hand_offs(shard: &mut Fixture, keys: &[String]) -> Self {
        let step = |n: usize| {
            let (key, token) = (&keys[n / 2], token(n));
            let take = format!("LOCK.ACQUIRE {key} {token} 600000 BLOCK 0");
            let give = format!("LOCK.RELEASE {key} {token}");
            // Both in one packet, so that the next release comes after the next wait.
            [bytes([take.clone()]), bytes([give, take])]
        };
        let mut clients = Self {
            connections: shard.connections(CLIENTS),
            steps: (0..CLIENTS).map(step).collect(),
            holders: 0,
        };
        for first in [0, 1] {
            for n in (first..CLIENTS).step_by(2) {
                clients.connections[n].send(&clients.steps[n][0]);
            }
            if first == 0 {
                for n in (0..CLIENTS).step_by(2) {
                    assert_eq!(clients.connections[n].receive(1).yes, 1);
                }
            }
        }
        shard.wait_for_blocked(CLIENTS / 2);
        clients
    }

    fn pairs(&mut self, pipeline: usize) {
        for step in [0, 1] {
            for (connection, steps) in self.connections.iter_mut().zip(&self.steps) {
                connection.send(&steps[step]);
            }
            for connection in &mut self.connections {
                assert_eq!(connection.receive(pipeline).yes, pipeline);
            }
        }
    }

    fn hand_off(&mut self) {
        for n in (self.holders..CLIENTS).step_by(2) {
            self.connections[n].send(&self.steps[n][1]);
        }
        // The release's reply for the one, the grant for the other.
        for connection in &mut self.connections {
            assert_eq!(connection.receive(1).yes, 1);
        }
        self.holders = 1 - self.holders;
    }
}

#[derive(Clone, Copy)]
enum Work {
    Pairs(usize),
    HandOffs,
}

impl Work {
    const ALL: [Self; 3] = [Self::Pairs(1), Self::Pairs(PIPELINE), Self::HandOffs];

    fn name(self) -> &'static str {
        match self {
            Self::Pairs(1) => "pair",
            Self::Pairs(_) => "pair, 16 in a pipeline",
            Self::HandOffs => "hand-off",
        }
    }

    /// Visits to the shards in a round. A pipeline does as much in fewer, still a multiple of all
    /// sizes.
    fn visits(self, with: &Run) -> usize {
        let full = match self {
            Self::Pairs(PIPELINE) => VISITS / 4,
            _ => VISITS,
        };
        // A quick run still visits each shard.
        if with.quick {
            SIZES[SIZES.len() - 1]
        } else {
            full
        }
    }

    fn each_turn(self) -> usize {
        match self {
            Self::Pairs(pipeline) => CLIENTS * pipeline,
            Self::HandOffs => CLIENTS / 2,
        }
    }

    fn clients(self, shards: &mut Shards) -> Vec<Clients> {
        let both = shards.primaries.iter_mut().zip(&shards.keys);
        both.map(|(shard, keys)| match self {
            Self::Pairs(pipeline) => Clients::of_pairs(shard, keys, pipeline),
            Self::HandOffs => Clients::of_hand_offs(shard, keys),
        })
        .collect()
    }

    /// The same work whatever the number of shards, which take turns.
    fn run(self, shards: &mut [Clients], visits: usize) {
        let count = shards.len();
        for visit in 0..visits {
            let clients = &mut shards[visit % count];
            for _ in 0..STAY {
                match self {
                    Self::Pairs(pipeline) => clients.pairs(pipeline),
                    Self::HandOffs => clients.hand_off(),
                }
            }
        }
    }
}

pub fn measure(with: &Run) {
    let mut report = Report::new("shards", "One shard and six", with.quick);
    report.say(
        "µs of the CPU of all primaries for a pair (acquire and release) and for a hand-off, in clusters of so many primaries with a replica each. \
         The work is the same and spread evenly; 50 clients to a shard; the sizes take turns, round by round. What idle nodes use in that time is taken off, and stands in the column *idle* for a second and a node. \
         All primaries share one core: throughput does not grow here. Instructions are those of one primary without a replica.",
    );
    let mut rows = Vec::new();
    for &kind in &with.kinds {
        rows.extend(of_server(with, kind, &mut report));
    }
    let header = [
        "server",
        "shards",
        "pair",
        "pair, -P 16",
        "hand-off",
        "idle",
        "pair, instructions",
        "hand-off, instructions",
    ];
    report.table(&header, &rows);
    report.write();
}

fn of_server(with: &Run, kind: Kind, report: &mut Report) -> Vec<Vec<String>> {
    let mut clusters: Vec<_> = SIZES
        .map(|size| Shards::start(kind, size, &Setup::with_module(&[])))
        .into();
    for cluster in &mut clusters {
        cluster.observe_idle(with.quick);
    }
    let mut rows: Vec<_> = SIZES
        .map(|size| vec![name(kind).to_string(), size.to_string()])
        .into();
    for work in Work::ALL {
        let visits = work.visits(with);
        let mut clients: Vec<_> = clusters.iter_mut().map(|all| work.clients(all)).collect();
        let mut costs = vec![Vec::new(); SIZES.len()];
        for round in 0..=with.rounds(ROUNDS) {
            for (at, cluster) in clusters.iter_mut().enumerate() {
                let cost = cluster.cost(|| work.run(&mut clients[at], visits));
                if round > 0 {
                    costs[at].push(cost / (visits * STAY * work.each_turn()) as f64);
                }
            }
        }
        for (at, size) in SIZES.into_iter().enumerate() {
            let subject = format!("{}, {size} shards", work.name());
            let cost = Spread::of(&costs[at]);
            report.figure(kind, "CPU of all primaries, µs", &subject, cost);
            rows[at].push(cost.shown(2));
            if at > 0 {
                let ratio = Spread::of_ratios(&costs[at], &costs[0]);
                let goal = "CPU of all primaries against one shard";
                report.goal(kind, goal, &subject, Bound::AtMost(1.03), ratio);
            }
        }
    }
    for (row, (cluster, size)) in rows.iter_mut().zip(clusters.iter().zip(SIZES)) {
        row.push(format!("{:.0}", cluster.idle_us / size as f64));
    }
    drop(clusters);
    let counts = SIZES.map(|size| shards_counted::count(with, kind, size));
    for (work, name) in ["pair", "hand-off"].into_iter().enumerate() {
        let one = counts[0][work];
        for ((row, count), size) in rows.iter_mut().zip(&counts).zip(SIZES) {
            let (count, subject) = (count[work], format!("{name}, {size} shards"));
            row.push(format!("{count:.0}"));
            report.figure(kind, "instructions", &subject, Spread::of(&[count]));
            if size > 1 {
                let goal = "instructions against one shard";
                let ratio = Spread::of(&[count / one]);
                report.goal(kind, goal, &subject, Bound::AtMost(1.03), ratio);
            }
        }
    }
    rows
}
