//! A Redis Cluster for the tests, on loopback: three primaries with a replica each, or some
//! primaries. Every node is ended by its `Drop`.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, Reply};
use super::clock::Clock;
use super::kind::Kind;
use super::later::Later;
use super::server::{wait_for, Server, Setup};

/// The number of primaries that share the slots.
pub const SHARDS: usize = 3;

const SLOTS: i64 = 16_384;

/// Nothing happens without a command: no replica leaves its primary, and none is too old to be
/// elected. The append-only file of a node records everything since `start` as text.
///
/// Nodes that are cut off answer reads, and must hand nothing off because of that.
const OPTIONS: [&str; 14] = [
    "--cluster-enabled",
    "yes",
    "--cluster-allow-reads-when-down",
    "yes",
    "--cluster-migration-barrier",
    "100",
    "--cluster-replica-validity-factor",
    "0",
    "--repl-diskless-sync-delay",
    "0",
    "--aof-use-rdb-preamble",
    "no",
    "--auto-aof-rewrite-percentage",
    "0",
];

/// The primaries, and then their replicas if there are any. Of six nodes, node 3 starts as the
/// replica of node 0, node 4 of node 1, node 5 of node 2.
pub struct Cluster {
    pub nodes: Vec<Server>,
    primaries: usize,
}

impl Cluster {
    /// A `cluster-node-timeout` at which no node suspects another one if the machine stalls.
    pub const PATIENT_MS: u32 = 15_000;

    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    /// Starts a cluster whose nodes have additional options, the module's arguments first.
    pub fn start_with(kind: Kind, options: &[&str]) -> Self {
        Self::start_as(kind, options, Setup::with_module)
    }

    /// The same with nodes that run by a clock of the test. None suspects another one.
    pub fn start_by(kind: Kind, clock: &Clock) -> Self {
        let patient = ["--cluster-node-timeout", "3600000"];
        let setup = |options: &[&str]| Setup::with_module(options).with_clock(clock);
        Self::start_as(kind, &patient, setup)
    }

    fn start_as(kind: Kind, options: &[&str], setup: impl Fn(&[&str]) -> Setup) -> Self {
        let patient = Self::PATIENT_MS.to_string();
        let patient = ["--cluster-node-timeout", &patient];
        let is_option = |word: &&str| word.starts_with("--");
        let arguments = options.iter().position(is_option).unwrap_or(options.len());
        let (arguments, options) = options.split_at(arguments);
        let options = [arguments, &OPTIONS[..], &patient, options].concat();
        let start = |_| Server::start_as(kind, setup(&options));
        let cluster = Self::join((0..2 * SHARDS).map(start).collect(), SHARDS);
        (0..SHARDS).for_each(|shard| cluster.follow(shard + SHARDS, shard));
        cluster.wait_until_all_agree();
        cluster.keep_account();
        cluster
    }

    /// Starts this many primaries, without replicas and with these options only.
    pub fn of(kind: Kind, primaries: usize, options: &[&str]) -> Self {
        let options = [&["--cluster-enabled", "yes"], options].concat();
        let start = |_| Server::start_with(kind, &options);
        let cluster = Self::join((0..primaries).map(start).collect(), primaries);
        cluster.wait_until_all_agree();
        cluster
    }

    /// Starts a node that has all slots.
    pub fn node(kind: Kind, options: &[&str]) -> Server {
        Self::of(kind, 1, options).nodes.remove(0)
    }

    fn join(nodes: Vec<Server>, primaries: usize) -> Self {
        let cluster = Self { nodes, primaries };
        (0..primaries).for_each(|shard| cluster.give_slots(shard));
        cluster.introduce();
        cluster
    }

    /// Introduces all nodes to each other.
    fn introduce(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let mut c = node.client();
            // Their epochs differ, so that the nodes need not resolve a conflict first.
            c.text(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
            for other in &self.nodes[..number] {
                c.text(&format!("CLUSTER MEET 127.0.0.1 {}", other.port));
            }
        }
        for node in &self.nodes {
            let mut c = node.client();
            wait_for("the nodes to know each other", || {
                let nodes = c.text("CLUSTER NODES");
                let all = nodes.lines().count() == self.nodes.len();
                (all && !nodes.contains("handshake")).then_some(())
            });
        }
    }

    fn give_slots(&self, shard: usize) {
        let mut words = vec!["CLUSTER".to_string(), "ADDSLOTS".to_string()];
        words.extend(self.slots_of(shard).map(|slot| slot.to_string()));
        let given = self.client(shard).send(&words);
        assert_eq!(given, Reply::Simple("OK".into()));
    }

    fn follow(&self, replica: usize, primary: usize) {
        let line = format!("CLUSTER REPLICATE {}", self.id(primary));
        self.client(replica).text(&line);
    }

    /// Makes every node write its own and its replicated effects into its append-only file.
    fn keep_account(&self) {
        for replica in SHARDS..2 * SHARDS {
            let primary = &self.nodes[replica - SHARDS];
            self.nodes[replica].wait_until_it_follows(primary);
        }
        for node in &self.nodes {
            let mut c = node.client();
            c.text("CONFIG SET appendfsync no");
            c.text("CONFIG SET appendonly yes");
        }
        for node in &self.nodes {
            super::aof::until_rewritten(&mut node.client());
        }
    }

    /// Waits until all running nodes agree on owners and replicas of all slots, and all slots are
    /// served.
    #[track_caller]
    pub fn wait_until_all_agree(&self) {
        let mut last_told = Instant::now();
        wait_for("the nodes to agree", || {
            let mut views = self.running().map(|node| view(&mut node.client()));
            let first = views.next()??;
            let all = first.iter().map(|(from, to, _)| to - from + 1).sum::<i64>();
            let agreed = views.all(|view| view.as_ref() == Some(&first));
            if agreed && all == SLOTS {
                return Some(());
            }
            if last_told.elapsed() > Duration::from_millis(200) {
                self.tell_each_other();
                last_told = Instant::now();
            }
            thread::sleep(Duration::from_millis(20));
            None
        });
    }

    /// Makes all nodes send their state to all others. On their own they take seconds for it.
    fn tell_each_other(&self) {
        for node in self.running() {
            let mut c = node.client();
            for other in self.running().filter(|other| other.port != node.port) {
                // It may be in progress already.
                c.call(&format!("CLUSTER MEET 127.0.0.1 {}", other.port));
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    pub fn client(&self, node: usize) -> Client {
        self.nodes[node].client()
    }

    pub fn id(&self, node: usize) -> String {
        self.client(node).text("CLUSTER MYID")
    }

    pub fn slot(&self, key: &str) -> i64 {
        self.client(0).int(&format!("CLUSTER KEYSLOT {key}"))
    }

    /// The initial slots of a shard.
    pub fn slots_of(&self, shard: usize) -> Range<i64> {
        let at = |shard: usize| shard as i64 * SLOTS / self.primaries as i64;
        at(shard)..at(shard + 1)
    }

    /// The shard that has a slot initially.
    pub fn shard_of(&self, slot: i64) -> usize {
        let has_it = |shard: &usize| self.slots_of(*shard).contains(&slot);
        (0..self.primaries)
            .find(has_it)
            .expect("a shard for every slot")
    }

    /// Keys in the initial slots of a shard.
    pub fn keys_of(&self, shard: usize, count: usize) -> Vec<String> {
        let mut c = self.client(0);
        let mut keys = (0..).map(|n| format!("lock:{n}"));
        let mut found = Vec::new();
        while found.len() < count {
            let key = keys.next().expect("no end of keys");
            let slot = c.int(&format!("CLUSTER KEYSLOT {key}"));
            if self.slots_of(shard).contains(&slot) {
                found.push(key);
            }
        }
        found
    }

    /// Sends a command that must block to a node with other clients. It is recognised by its token,
    /// the third word.
    #[track_caller]
    pub fn blocked(&self, node: usize, line: &str) -> Later {
        let mut words = line.split(' ').skip(1);
        let (key, token) = (words.next().unwrap(), words.next().unwrap());
        let later = self.nodes[node].later(line);
        let mut c = self.client(node);
        wait_for(&format!("{line} to block"), || {
            c.waiters(key).iter().any(|t| t == token).then_some(())
        });
        later
    }

    /// Whether a node considers itself a primary.
    pub fn is_primary(&self, node: usize) -> bool {
        self.client(node).info("role") == "master"
    }

    /// Makes a replica the primary. An election ends after five seconds without a winner, if the
    /// machine stalls: then it starts another one. A vote is lost without a link to the replica, and
    /// the voter gives no other one for twice the node timeout.
    #[track_caller]
    pub fn fail_over(&self, new: usize, line: &str) {
        let (mut c, id) = (self.client(new), self.id(new));
        let is_linked = |node: &mut Client, id: &str| {
            let nodes = node.text("CLUSTER NODES");
            let mut lines = nodes.lines();
            lines.any(|line| line.starts_with(id) && line.contains(" connected"))
        };
        // Its own link matters, too: the replica refuses a failover that its primary cannot join.
        let nodes = c.text("CLUSTER NODES");
        let own = nodes.lines().find(|line| line.starts_with(&id));
        let of = own.and_then(|line| line.split(' ').nth(3)).unwrap();
        wait_for("links from and to the replica", || {
            let sees_it = |node: &Server| is_linked(&mut node.client(), &id);
            (self.running().all(sees_it) && is_linked(&mut c, of)).then_some(())
        });
        assert_eq!(c.text(line), "OK");
        let mut asked = Instant::now();
        wait_for("the replica to be promoted", || {
            if asked.elapsed() > Duration::from_secs(6) {
                c.call(line);
                asked = Instant::now();
            }
            self.is_primary(new).then_some(())
        });
        self.wait_until_all_agree();
    }

    /// Has all nodes forget a slot, and gives it to one. A message under way may tell it between
    /// two commands that the slot is still another one's.
    #[track_caller]
    pub fn claim(&self, slot: i64, to: usize) {
        wait_for("the slot to be free", || {
            for node in &self.nodes {
                node.client().call(&format!("CLUSTER DELSLOTS {slot}"));
            }
            let added = self.client(to).call(&format!("CLUSTER ADDSLOTS {slot}"));
            (added == Reply::Simple("OK".into())).then_some(())
        });
    }

    /// Begins to move a slot in the same way as redis-cli.
    #[track_caller]
    pub fn begin_to_move(&self, slot: i64, from: usize, to: usize) {
        let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from));
        let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to));
        self.set_slot(to, &importing);
        self.set_slot(from, &migrating);
    }

    /// Moves the keys of a slot one at a time. Returns their number.
    #[track_caller]
    pub fn move_keys(&self, slot: i64, from: usize, to: usize) -> usize {
        let mut c = self.client(from);
        let port = self.nodes[to].port;
        let mut moved = 0;
        loop {
            let keys = c.call(&format!("CLUSTER GETKEYSINSLOT {slot} 1"));
            let [key] = keys.items() else {
                return moved;
            };
            let key = key.to_text();
            // The lock may be free by now, and its key gone.
            if c.text(&format!("MIGRATE 127.0.0.1 {port} {key} 0 10000")) == "OK" {
                moved += 1;
            }
        }
    }

    #[track_caller]
    pub fn end_of_move(&self, slot: i64, from: usize, to: usize) {
        let line = format!("CLUSTER SETSLOT {slot} NODE {}", self.id(to));
        // The new owner first, so that the slot always has one.
        let others = (0..self.primaries).filter(|node| *node != to && *node != from);
        for node in [to, from].into_iter().chain(others) {
            self.set_slot(node, &line);
        }
    }

    #[track_caller]
    fn set_slot(&self, node: usize, line: &str) {
        let mut c = self.client(node);
        wait_for(line, || match c.call(line) {
            Reply::Simple(ok) if ok == "OK" => Some(()),
            // Valkey asks its replicas first, and gives them two seconds.
            Reply::Error(error) if error.starts_with("NOREPLICAS") => None,
            other => panic!("{line}: {other:?}"),
        });
    }
}

/// First slot, last slot, and the ports of the primary and of the replicas.
type Served = (i64, i64, Vec<i64>);

/// The owners of the slots as a node sees them. `None` while it reports that the cluster is down.
fn view(c: &mut Client) -> Option<Vec<Served>> {
    if !c.text("CLUSTER INFO").contains("cluster_state:ok") {
        return None;
    }
    let slots = c.call("CLUSTER SLOTS");
    let ranges = slots.items().iter().map(|range| {
        let range = range.items();
        let ports = range[2..].iter().map(|node| node.items()[1].as_int());
        let mut ports: Vec<_> = ports.collect();
        ports[1..].sort_unstable();
        (range[0].as_int(), range[1].as_int(), ports)
    });
    let mut view: Vec<_> = ranges.collect();
    view.sort_unstable();
    Some(view)
}
