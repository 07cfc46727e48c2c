//! Two primaries of a cluster that move slots, and a client that goes where they send it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, WITHOUT_LIMITS};
use crate::harness::{Client, Kind, Reply, Setup};
use crate::load::{run, token, Requests};
use crate::scale::{Of, CHUNK, PIPELINE};
use crate::shards::{give_slots, introduce, node, wait_until_it_serves, OPTIONS, SLOTS};
use crate::stats::Latency;
use crate::turns::Turns;

pub const MOVING: usize = 64;
const SAMPLE: usize = 1_000;
/// How many keys redis-cli moves at once.
pub const BATCH: usize = 10;
const TTL_MS: u128 = 600_000;
/// Between two pairs, so that they are spread over the time of the move.
const PACE: Duration = Duration::from_micros(500);
/// The longest time for a move, or for an answer during one.
const PATIENCE: Duration = Duration::from_secs(300);

/// Two primaries, one of which gives slots to the other.
pub struct Scene {
    kind: Kind,
    of: Of,
    holds: usize,
    nodes: [Fixture; 2],
    pub turns: [Turns; 2],
    /// Tags of slots of the source, with their slots. The first half moves.
    tags: Vec<(String, usize)>,
}

impl Scene {
    pub fn start(kind: Kind, of: Of, holds: usize) -> Self {
        let turns = [Turns::new(), Turns::new()];
        let mut nodes = turns.each_ref().map(|turns| {
            let setup = turns.setup(Setup::with_module(&WITHOUT_LIMITS));
            let node = Fixture::start_as(kind, setup, &OPTIONS);
            // The process that exports the slots has a core beside the server, as elsewhere.
            node.run_on("0,1");
            node
        });
        for (shard, node) in nodes.iter_mut().enumerate() {
            give_slots(&mut node.control, shard, 2);
        }
        introduce(nodes.iter_mut().map(node));
        for node in &mut nodes {
            wait_until_it_serves(&mut node.control);
        }
        let tags = tags(&mut nodes[0]);
        let mut scene = Self {
            kind,
            of,
            holds,
            nodes,
            turns,
            tags,
        };
        scene.fill();
        scene
    }

    fn fill(&mut self) {
        let mut connections = self.nodes[0].connections(1);
        for first in (0..self.holds).step_by(CHUNK) {
            let chunk = first..self.holds.min(first + CHUNK);
            let lines = chunk.map(|n| self.of.take_key(&self.key(n), &token(n), TTL_MS));
            let tally = run(&mut connections, &Requests::of(lines), PIPELINE);
            assert_eq!(tally.yes, tally.replies());
        }
        assert_eq!(self.in_moving_slots(0), self.holds);
    }

    fn key(&self, n: usize) -> String {
        format!("{{{}}}{n}", self.tags[n % MOVING].0)
    }

    fn moving_slots(&self) -> Vec<usize> {
        let moving = self.tags[..MOVING].iter();
        moving.map(|(_, slot)| *slot).collect()
    }

    pub fn in_moving_slots(&mut self, node: usize) -> usize {
        let slots = self.moving_slots();
        let control = &mut self.nodes[node].control;
        let counts = slots
            .iter()
            .map(|slot| control.int(&format!("CLUSTER COUNTKEYSINSLOT {slot}")));
        counts.sum::<i64>() as usize
    }

    /// The token and the fence of some holds, or the values of strings.
    pub fn sample(&mut self, node: usize) -> Vec<(Vec<u8>, i64)> {
        let step = (self.holds / SAMPLE).max(1);
        let sample = (0..self.holds).step_by(step).map(|n| (n, self.key(n)));
        let sample: Vec<_> = sample.collect();
        let of = self.of;
        let control = &mut self.nodes[node].control;
        let look = |(n, key): &(usize, String)| match of {
            Of::Locks => {
                let info = control.call(&format!("LOCK.INFO {key}"));
                let holders = info.field("holders");
                let [holder] = holders.items() else {
                    panic!("one holder of {key}: {info:?}");
                };
                let fence = holder.field("fence").as_int();
                let checked = control.int(&format!("LOCK.CHECK {key} {}", token(*n)));
                assert_eq!(checked, fence, "{key}");
                (holder.field("token").as_bytes().to_vec(), fence)
            }
            Of::Strings => (control.text(&format!("GET {key}")).into_bytes(), 0),
        };
        sample.iter().map(look).collect()
    }

    /// A client of the tags from the `first` on, as many as move.
    pub fn follower(&self, first: usize) -> Follower {
        let tags = &self.tags[first..first + MOVING];
        let keys = tags.iter().map(|(tag, _)| format!("{{{tag}}}pair"));
        let step = |key: String| {
            let owner = token(first);
            [
                self.of.take_key(&key, &owner, TTL_MS),
                self.of.give_key(&key, &owner),
            ]
        };
        Follower::new(self.nodes[0].server.port, keys.map(step).collect())
    }

    pub fn move_all(&mut self) {
        let slots = self.moving_slots();
        match self.kind {
            Kind::Valkey9 => self.move_slots(&slots),
            _ => slots.iter().for_each(|slot| self.move_keys(*slot)),
        }
    }

    fn move_slots(&mut self, slots: &[usize]) {
        let ranges: Vec<_> = slots.iter().map(|slot| format!("{slot} {slot}")).collect();
        let [source, target] = &mut self.nodes;
        let id = target.control.text("CLUSTER MYID");
        let ranges = ranges.join(" ");
        let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {ranges} NODE {id}");
        assert_eq!(source.control.text(&line), "OK");
        for node in [source, target] {
            patiently("the end of the move", || {
                let jobs = node.control.call("CLUSTER GETSLOTMIGRATIONS");
                let state = jobs.items().first()?.field("state");
                let state = state.as_bytes();
                assert!(state != b"failed" && state != b"cancelled", "{jobs:?}");
                (state == b"success").then_some(())
            });
        }
    }

    fn move_keys(&mut self, slot: usize) {
        let [source, target] = &mut self.nodes;
        let port = target.server.port;
        let [from, to] = [&mut source.control, &mut target.control];
        let ids = [from.text("CLUSTER MYID"), to.text("CLUSTER MYID")];
        to.text(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[0]));
        from.text(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[1]));
        loop {
            let keys = from.call(&format!("CLUSTER GETKEYSINSLOT {slot} {BATCH}"));
            let keys = keys.items().iter().map(Reply::as_bytes);
            let head = format!("MIGRATE 127.0.0.1 {port}");
            let mut words: Vec<_> = head.split(' ').map(str::as_bytes).collect();
            words.extend([&b""[..], b"0", b"10000", b"KEYS"]);
            let fixed = words.len();
            words.extend(keys);
            if words.len() == fixed {
                break;
            }
            // The key of a pair may be gone by now.
            let said = from.send(&words);
            assert!(matches!(said, Reply::Simple(_)), "{said:?}");
        }
        for node in [to, from] {
            node.text(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[1]));
        }
    }
}

/// Tags in as many slots of the first of two primaries as move, and as many that stay.
fn tags(source: &mut Fixture) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut names = (0..).map(|n: usize| format!("t{n:04}"));
    while found.len() < 2 * MOVING {
        let tag = names.next().expect("no end of tags");
        let slot = source.control.int(&format!("CLUSTER KEYSLOT {tag}")) as usize;
        if slot < SLOTS / 2 && found.iter().all(|(_, known)| *known != slot) {
            found.push((tag, slot));
        }
    }
    found
}

pub fn patiently(what: &str, mut condition: impl FnMut() -> Option<()>) {
    let begin = Instant::now();
    while condition().is_none() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A client that goes where the cluster sends it.
pub struct Follower {
    nodes: HashMap<u16, Client>,
    /// For each of its keys the port of the node that has it, as far as it knows.
    owners: Vec<u16>,
    /// For each of its keys how to take it, and how to give it back.
    steps: Vec<[String; 2]>,
}

pub const IS_BEFORE: u8 = 0;
pub const IS_MOVING: u8 = 1;
pub const IS_OVER: u8 = 2;

/// Ends the clients, also if what they go along with panics.
pub struct Over<'a>(pub &'a AtomicU8);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(IS_OVER, Ordering::SeqCst);
    }
}

impl Follower {
    pub fn new(first: u16, steps: Vec<[String; 2]>) -> Self {
        Self {
            nodes: HashMap::new(),
            owners: vec![first; steps.len()],
            steps,
        }
    }

    /// Does pairs until the move is over. Returns how long they took before and during it.
    pub fn follow(mut self, stage: &AtomicU8) -> [Latency; 2] {
        let mut found = [Latency::new(), Latency::new()];
        for at in (0..self.steps.len()).cycle() {
            if stage.load(Ordering::SeqCst) == IS_OVER {
                break;
            }
            let begin = Instant::now();
            self.ask(at, 0);
            self.ask(at, 1);
            let is_before = stage.load(Ordering::SeqCst) == IS_BEFORE;
            found[usize::from(!is_before)].record(begin.elapsed());
            thread::sleep(PACE);
        }
        found
    }

    fn ask(&mut self, at: usize, step: usize) {
        let line = &self.steps[at][step];
        let (mut node, mut asks) = (self.owners[at], false);
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < PATIENCE, "{line} has no end");
            let client = self.nodes.entry(node);
            let client = client.or_insert_with(|| Client::connect(node));
            let reply = match asks {
                true => client.in_one_go(&["ASKING", line]).pop(),
                false => Some(client.call(line)),
            };
            let error = match reply.expect("a reply") {
                Reply::Int(1..) => return,
                Reply::Simple(ok) if ok == "OK" => return,
                Reply::Error(error) => error,
                other => panic!("{line}: {other:?}"),
            };
            let named = error.rsplit(':').next().and_then(|port| port.parse().ok());
            (node, asks) = match (error.split(' ').next(), named) {
                (Some("MOVED"), Some(there)) => (there, false),
                (Some("ASK"), Some(there)) => (there, true),
                (Some("TRYAGAIN" | "CLUSTERDOWN"), _) => (self.owners[at], false),
                _ => panic!("{line}: {error}"),
            };
            if !asks {
                self.owners[at] = node;
            }
        }
    }
}
