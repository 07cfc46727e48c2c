//! A slot that goes to and fro between a node and another one, with and without its locks. Either
//! may die, and the first one has a replica that takes its place at once, whatever it lacks.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::{Rule, Scope, Settings, BEAT_US};
use super::*;
use crate::lock::{effort, Now};

const KEY: &[u8] = b"k";
const LEASE_MS: u64 = 1_000;
const SLACK_MS: u64 = 200;

/// The node with the replica, the other one, and the replica.
const SOURCE: usize = 0;
const OTHER: usize = 1;
const REPLICA: usize = 2;
const NODES: std::ops::Range<usize> = 0..3;

/// A hold as a node knows it: who has it, and until when.
type Held = Option<(u64, u64)>;

/// A node with at most one lock, in the one slot that moves.
struct Node {
    guard: Guard,
    is_primary: bool,
    /// Who has the slot, by what this node knows: itself or not.
    owns: bool,
    /// Whether the slot is on its way, and to or from which node.
    moves: Option<usize>,
    held: Held,
    /// When it has to stop, because another one is in its place.
    stops_us: Option<u64>,
    /// Until when it may not learn that it has lost the slot.
    learns_us: Option<u64>,
}

struct World {
    us: u64,
    nodes: [Node; 3],
    clients: u64,
    /// Who believes that he holds the lock, and until when.
    believes: Held,
}

fn settings(without: Option<Rule>) -> Settings {
    Settings {
        scope: Scope::Failover,
        max_ttl_ms: LEASE_MS,
        slack_ms: SLACK_MS,
        without,
        ..Settings::default()
    }
}

impl World {
    fn new(without: Option<Rule>) -> Self {
        let node = |n| {
            let mut guard = Guard::default();
            guard.set(settings(without), 0);
            Node {
                guard,
                is_primary: n != REPLICA,
                owns: n == SOURCE,
                moves: None,
                held: None,
                stops_us: None,
                learns_us: None,
            }
        };
        let mut world = Self {
            us: 1,
            nodes: [node(SOURCE), node(OTHER), node(REPLICA)],
            clients: 0,
            believes: None,
        };
        world.look();
        world
    }

    /// All nodes look at their slots and at the clocks.
    fn look(&mut self) {
        self.us += 1;
        for n in NODES {
            let cluster = self.cluster_of(n);
            let node = &mut self.nodes[n];
            if node.is_primary {
                node.guard.look_at_slots(cluster, self.us);
            }
        }
        self.pass(0);
    }

    fn cluster_of(&self, n: usize) -> Cluster {
        let (node, slot) = (&self.nodes[n], slot_of(KEY));
        let mut mine = vec![false; usize::from(SLOTS)];
        mine[usize::from(slot)] = node.owns;
        let moving = node
            .moves
            .map(|other| (slot, (!node.owns, [other as u8; 40])));
        Cluster {
            mine,
            moving: moving.into_iter().collect(),
        }
    }

    fn pass(&mut self, us: u64) {
        self.us += us;
        for node in &mut self.nodes {
            if node.stops_us.is_some_and(|at| at <= self.us) {
                (node.is_primary, node.owns, node.moves) = (false, false, None);
                (node.stops_us, node.held) = (None, None);
            }
            node.guard.open_slots(self.us);
            node.guard.look(Now::from_micros(self.us), self.us, self.us);
            node.held = node.held.filter(|(_, until_us)| *until_us > self.us);
        }
        if self
            .nodes
            .iter()
            .any(|node| node.learns_us.is_some_and(|at| at <= self.us))
        {
            self.learn();
        }
    }

    /// Grants the lock at a node to a new client: it was free there, or its owner releases it.
    /// Whether two clients believe that they hold it now.
    fn grants(&mut self, n: usize) -> bool {
        // The source of a move sends clients to its target.
        let sends = |one: &Node| one.is_primary && one.owns && one.moves == Some(n);
        let mut sources = self.nodes.iter().filter(|one| sends(one));
        let is_sent = sources.any(|one| one.held.is_none());
        let (us, node) = (self.us, &mut self.nodes[n]);
        let is_absent = node.held.is_none();
        let is_served = match (node.owns, node.moves) {
            (true, moves) => moves.is_none() || !is_absent,
            (false, moves) => moves.is_some() && is_sent,
        };
        if !node.is_primary || !is_served {
            return false;
        }
        let is_closed = node.guard.is_closed_for(|| KEY, is_absent);
        if let Some((owner, _)) = node.held.take() {
            self.believes = self.believes.filter(|(one, _)| *one != owner);
        }
        if is_closed {
            return false;
        }
        self.clients += 1;
        let until_us = us + LEASE_MS * 1_000;
        node.held = Some((self.clients, until_us));
        let others = self.believes.replace((self.clients, until_us));
        others.is_some_and(|(_, until_us)| until_us > us)
    }

    /// The owner of the slot, and who has a move with it.
    fn owner(&self) -> Option<usize> {
        NODES
            .rev()
            .find(|n| self.nodes[*n].is_primary && self.nodes[*n].owns)
    }

    /// The node that has lost the slot learns of it, and deletes its key.
    fn learn(&mut self) {
        for node in &mut self.nodes {
            if node.learns_us.take().is_some() {
                (node.owns, node.moves, node.held) = (false, None, None);
            }
        }
    }

    /// A node takes the slot of another one, which learns of it within the slack.
    fn take(&mut self, from: usize, to: usize) {
        let (us, nodes) = (self.us, &mut self.nodes);
        (nodes[to].owns, nodes[to].moves) = (true, None);
        nodes[from].learns_us = Some(us + SLACK_MS * 980);
    }

    /// Does something. Whether two clients believe that they hold the lock.
    fn step(&mut self, rng: &mut StdRng) -> bool {
        let n = rng.random_range(NODES);
        match rng.random_range(0..18) {
            0..=5 => return self.grants(n),
            6 => self.look(),
            7..=10 => {
                self.pass(rng.random_range(BEAT_US / 2..BEAT_US));
                self.look();
            }
            11 if !self.nodes[REPLICA].is_primary => {
                self.nodes[REPLICA].held = self.nodes[SOURCE].held;
            }
            11 => {}
            12 => self.learn(),
            step => self.change(step - 4, rng),
        }
        false
    }

    /// What goes and comes back between two looks is not covered.
    fn change(&mut self, step: u32, rng: &mut StdRng) {
        self.look();
        let Some(owner) = self.owner() else {
            return;
        };
        let source = if self.nodes[REPLICA].is_primary {
            REPLICA
        } else {
            SOURCE
        };
        let other = if owner == OTHER { source } else { OTHER };
        let is_under_way = self.nodes.iter().any(|node| node.learns_us.is_some());
        let is_open = self.nodes[owner].guard.closed_for(self.us).is_none();
        match step {
            // No slot moves away from a node during its guard.
            9 if !is_under_way && is_open && self.nodes[owner].moves.is_none() => {
                self.nodes[owner].moves = Some(other);
                self.nodes[other].moves = Some(owner);
            }
            10 if self.nodes[owner].moves == Some(other) && self.nodes[other].moves.is_some() => {
                if let Some(held) = self.nodes[owner].held.take() {
                    self.nodes[other].held = Some(held);
                } else if !is_under_way && rng.random_range(0..3) == 0 {
                    self.take(owner, other);
                }
            }
            // The operator gives the move up. A lock that has moved stays there.
            11 => {
                let n = if rng.random_range(0..2) == 0 {
                    owner
                } else {
                    other
                };
                self.nodes[n].moves = None;
            }
            12 if !is_under_way && rng.random_range(0..3) == 0 => self.take(owner, other),
            // It dies within the slack, and its replica is the primary at once.
            13 if owner == SOURCE && !self.nodes[REPLICA].is_primary => {
                let (us, moves) = (self.us, self.nodes[SOURCE].moves);
                self.nodes[SOURCE].stops_us = Some(us + rng.random_range(1..SLACK_MS * 980));
                let replica = &mut self.nodes[REPLICA];
                // Not each server tells its replicas of a move.
                replica.moves = moves.filter(|_| rng.random_range(0..2) == 0);
                (replica.is_primary, replica.owns) = (true, true);
                replica.guard.begin(Reason::Promotion, us);
                self.look();
            }
            _ => {}
        }
    }
}

fn is_breach(seed: u64, without: Option<Rule>) -> bool {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(without);
    (0..100).any(|_| world.step(&mut rng))
}

#[test]
fn a_slot_that_comes_or_moves_excludes_whom_it_may_lack() {
    let histories = effort::runs(1_000);
    let found = (0..histories).find(|seed| is_breach(*seed, None));
    assert_eq!(found, None);
    let rules = [
        Rule::Slots,
        Rule::SlotMoves,
        Rule::SlotAbsent,
        Rule::Slack,
        Rule::WholeWait,
        Rule::Promotion,
    ];
    for rule in rules {
        let found = (0..4_000).find(|seed| is_breach(*seed, Some(rule)));
        println!("without {rule:?} history {found:?} has a breach");
        assert!(found.is_some(), "{rule:?}");
    }
}

/// The source of a move hands the lock on and dies. Its replica lacks that, and sends clients to
/// the target, which grants nothing however long the move lasts.
#[test]
fn a_target_grants_nothing_that_a_replaced_source_may_have_granted() {
    for (without, is_granted) in [(None, false), (Some(Rule::SlotAbsent), true)] {
        let mut world = World::new(without);
        world.nodes[SOURCE].moves = Some(OTHER);
        world.nodes[OTHER].moves = Some(SOURCE);
        world.look();
        world.pass(10 * LEASE_MS * 1_000);
        world.look();
        world.nodes[SOURCE].held = Some((7, world.us + LEASE_MS * 1_000));
        world.believes = world.nodes[SOURCE].held;
        world.nodes[SOURCE].held = None; // It has died, and its replica lacks the lock.
        assert_eq!(world.grants(OTHER), is_granted);
    }
}

/// A replica of the node is promoted as planned, and knows of the slot only by what it is told. A
/// request in a slot that is open, or known to be closed, has nothing looked at.
#[test]
fn a_closed_slot_is_told_and_known() {
    let mut world = World::new(None);
    let node = &mut world.nodes[OTHER];
    node.guard.beat_due_us = None;
    node.guard.refused(KEY);
    assert_eq!(node.guard.beat_due_us, Some(0), "a slot that is not here");
    node.owns = true;
    let cluster = world.cluster_of(OTHER);
    let (us, guard) = (world.us, &mut world.nodes[OTHER].guard);
    guard.look_at_slots(cluster, us);
    let told = guard.beat(us, Now::from_micros(us)).left_ms;
    assert_eq!(told, None, "the slack is not over");
    let later_us = us + SLACK_MS * 1_000;
    let told = guard.beat(later_us, Now::from_micros(later_us)).left_ms;
    assert_eq!(told, Some(LEASE_MS));
    let closed_for = guard.all_closed_for(Some(KEY), later_us);
    assert_eq!(closed_for, Some((LEASE_MS, Reason::Slot)));
    guard.beat_due_us = None;
    guard.refused(KEY);
    guard.open_slots(us + 2 * LEASE_MS * 1_000);
    guard.refused(KEY);
    assert_eq!(guard.beat_due_us, None);
}
