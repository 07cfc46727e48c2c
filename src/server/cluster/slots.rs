//! Slots of a cluster, as the guard needs them: who has which one, what left with those that went,
//! and what nodes ask one another.
//!
//! # Messages
//!
//! Nodes send them over the bus of the cluster, from module to module:
//! ```text
//! question (type 1) = asked_us:u64 | slot:u16*
//! answer   (type 2) = asked_us:u64 | left_ms:u64 | slot:u16*
//! ```
//! Integers are little-endian. A message of another length is passed over.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::CString;

use crate::command::integer;
use crate::engine::guard::slots::{Answer, Cluster, NodeId, Question};
use crate::engine::guard::{GuardEvent, Scope};
use crate::lock::slot::{slot_of, SLOTS};
use crate::lock::Lock;
use crate::server::api::clock;
use crate::server::api::{Caller, Context};
use crate::server::settings::limits;

const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// The kinds of messages.
pub(in crate::server) const KINDS: [u8; 2] = [QUESTION, ANSWER];

/// How many values are remembered that were saved in this turn of the event loop.
const MOST_SAVED: usize = 16_384;

/// Who has which slot, by the text of CLUSTER NODES.
pub(in crate::server) fn cluster_of(text: &[u8]) -> Cluster {
    let lines = || text.split(|byte| *byte == b'\n').filter_map(NodeLine::of);
    let (mine, others): (Vec<_>, Vec<_>) = lines().partition(|line| line.is_myself);
    let mut cluster = Cluster {
        owners: vec![None; usize::from(SLOTS)],
        ..Cluster::default()
    };
    for (at, line) in (0..).zip(mine.iter().chain(&others)) {
        cluster.nodes.push(line.id);
        for word in line.slots.split(|byte| *byte == b' ') {
            cluster.read_slots(word, at);
        }
    }
    cluster
}

struct NodeLine<'t> {
    id: NodeId,
    is_myself: bool,
    slots: &'t [u8],
}

impl<'t> NodeLine<'t> {
    fn of(line: &'t [u8]) -> Option<Self> {
        // The id, the address, the flags, four numbers and the state of the link.
        let mut words = line.splitn(9, |byte| *byte == b' ');
        let id = words.next()?.try_into().ok()?;
        let flags = words.nth(1)?;
        let is_myself = flags.split(|byte| *byte == b',').any(|is| is == b"myself");
        Some(Self {
            id,
            is_myself,
            slots: words.nth(5).unwrap_or_default(),
        })
    }
}

impl Cluster {
    /// Reads `7`, `0-5460`, `[93-<-id]` or `[77->-id]` of a node.
    fn read_slots(&mut self, word: &[u8], node: u16) {
        let slot = |text: &[u8]| u16::try_from(integer(text)?).ok().filter(|s| *s < SLOTS);
        if let Some(moving) = word.strip_prefix(b"[") {
            let moving = moving.strip_suffix(b"]").unwrap_or(moving);
            let at = moving.iter().position(|byte| *byte == b'-');
            let Some((number, rest)) = at.and_then(|at| moving.split_at_checked(at)) else {
                return;
            };
            let Some((arrow, id)) = rest.split_at_checked(3) else {
                return;
            };
            if let (Some(slot), Ok(id)) = (slot(number), id.try_into()) {
                match arrow {
                    b"-<-" => drop(self.importing.insert(slot, id)),
                    b"->-" => drop(self.migrating.insert(slot, id)),
                    _ => {}
                }
            }
            return;
        }
        let mut ends = word.split(|byte| *byte == b'-').map(slot);
        if let Some(Some(first)) = ends.next() {
            let last = ends.next().flatten().unwrap_or(first);
            let range = usize::from(first)..=usize::from(last);
            if let Some(owners) = self.owners.get_mut(range) {
                owners.fill(Some(node));
            }
        }
    }
}

/// Who has which slot. `None` if the server does not say.
pub(in crate::server) fn cluster(caller: &mut Caller<'_>) -> Option<Cluster> {
    let reply = caller.call_with(c"CLUSTER", &[b"NODES"]).ok()?;
    reply.part().text().map(cluster_of)
}

/// Whether there are no keys in a slot. On Valkey 9 a cluster may have several databases, and the
/// server counts only in the selected one.
pub(in crate::server) fn is_empty(caller: &mut Caller<'_>, slot: u16) -> bool {
    let slot = slot.to_string();
    let ctx = caller.context();
    let selected = ctx.selected_db();
    let mut dbs = (0..).take_while(|db| ctx.select_db(*db));
    let is_empty = dbs.all(|_| {
        let mut count = || caller.call_with(c"CLUSTER", &[b"COUNTKEYSINSLOT", slot.as_bytes()]);
        !ctx.has_keys() || count().is_ok_and(|reply| reply.part().number() == Some(0))
    });
    ctx.select_db(selected);
    is_empty
}

/// What left this node with its slots.
#[derive(Default)]
pub(in crate::server) struct Departures {
    /// The addresses of the locks that were saved in this turn: MIGRATE saves a value and then
    /// deletes it. They are only compared.
    saved: RefCell<HashSet<usize>>,
    /// When a held lock was last removed from a slot other than by MIGRATE, where one ever was.
    lost_us: RefCell<BTreeMap<u16, u64>>,
}

impl Departures {
    /// A lock is saved, by MIGRATE for instance. Whether the timer is to tell of the next turn.
    pub(in crate::server) fn is_saved(&self, lock: &Lock) -> bool {
        let mut saved = self.saved.borrow_mut();
        let is_first = saved.is_empty() && matters();
        if (is_first || !saved.is_empty()) && saved.len() < MOST_SAVED {
            saved.insert(address(lock));
        }
        is_first
    }

    /// What was saved in an earlier turn has not left by MIGRATE.
    pub(in crate::server) fn turn_begins(&self) {
        self.saved.borrow_mut().clear();
    }

    /// A held lock was removed from its key by another command, or with its slot.
    pub(in crate::server) fn is_removed(&self, name: &[u8], lock: &Lock) {
        if matters() && !self.saved.borrow().contains(&address(lock)) {
            let mut lost_us = self.lost_us.borrow_mut();
            lost_us.insert(slot_of(name), clock::boot_us());
        }
    }

    /// Whether no held lock was removed from a slot in so many milliseconds.
    pub(in crate::server) fn lost_nothing(&self, slot: u16, in_ms: u64) -> bool {
        let since_us = clock::boot_us().saturating_sub(in_ms.saturating_mul(1_000));
        let lost_us = self.lost_us.borrow();
        lost_us.get(&slot).is_none_or(|us| *us < since_us)
    }
}

/// Whether a guard needs it.
fn matters() -> bool {
    let is_in_cluster = Context::detached().is_some_and(Context::is_cluster);
    is_in_cluster && limits::guard().scope >= Scope::Failover
}

fn address(lock: &Lock) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// Asks another node about slots that it had.
pub(in crate::server) fn ask(ctx: Context<'_>, node: &NodeId, at_us: u64, slots: &BTreeSet<u16>) {
    send(ctx, node, QUESTION, message_of(&[at_us], slots));
}

/// Answers another node. The numbers are `asked_us` and `left_ms`.
pub(in crate::server) fn answer(
    ctx: Context<'_>,
    node: &NodeId,
    numbers: [u64; 2],
    slots: &BTreeSet<u16>,
) {
    send(ctx, node, ANSWER, message_of(&numbers, slots));
}

fn message_of(numbers: &[u64], slots: &BTreeSet<u16>) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    numbers
        .chain(slots.iter().flat_map(|slot| slot.to_le_bytes()))
        .collect()
}

fn send(ctx: Context<'_>, node: &NodeId, kind: u8, message: Vec<u8>) {
    if let Ok(node) = CString::new(*node) {
        ctx.send_to_node(&node, kind, &message);
    }
}

/// What a message of another node says.
pub(in crate::server) fn event_of(by: NodeId, kind: u8, message: &[u8]) -> Option<GuardEvent> {
    match kind {
        QUESTION => question_of(by, message).map(GuardEvent::Asked),
        _ => answer_of(by, message).map(GuardEvent::Answered),
    }
}

fn question_of(by: NodeId, message: &[u8]) -> Option<Question> {
    let (at_us, slots) = message.split_first_chunk()?;
    Some(Question {
        by,
        at_us: u64::from_le_bytes(*at_us),
        slots: slots_of(slots)?,
    })
}

fn answer_of(by: NodeId, message: &[u8]) -> Option<Answer> {
    let (asked_us, rest) = message.split_first_chunk()?;
    let (left_ms, slots) = rest.split_first_chunk()?;
    Some(Answer {
        by,
        asked_us: u64::from_le_bytes(*asked_us),
        left_ms: u64::from_le_bytes(*left_ms),
        slots: slots_of(slots)?,
    })
}

fn slots_of(bytes: &[u8]) -> Option<BTreeSet<u16>> {
    let slots = bytes.chunks(2).map(|slot| {
        let slot = slot.try_into().map(u16::from_le_bytes).ok();
        slot.filter(|slot| *slot < SLOTS)
    });
    slots.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_nodes_are_read() {
        let id = |digit: &str| digit.repeat(40);
        let (me, other, third) = (id("a"), id("b"), id("c"));
        let text = format!(
            "{other} 127.0.0.1:1@2,host slave,fail {me} 0 0 3 connected\n\
             {third} :0@0 master,noaddr - 0 0 1 disconnected 7 9-11 99999 x-y\n\
             {me} 127.0.0.1:3@4 myself,master - 0 0 2 connected 0-5 16383 \
             [3->-{third}] [8-<-{third}] [1-?-{third}] [2] [ [x->-{third}]\n"
        );
        let cluster = cluster_of(text.as_bytes());
        let bytes = |id: &str| NodeId::try_from(id.as_bytes()).unwrap();
        assert_eq!(
            cluster.nodes,
            [me, other, third.clone()].map(|id| bytes(&id))
        );
        for (slot, owner) in [
            (0, Some(0)),
            (5, Some(0)),
            (6, None),
            (7, Some(2)),
            (11, Some(2)),
            (16_383, Some(0)),
        ] {
            assert_eq!(cluster.owners[slot], owner, "{slot}");
        }
        assert_eq!(cluster.importing, [(8, bytes(&third))].into());
        assert_eq!(cluster.migrating, [(3, bytes(&third))].into());
        assert_eq!(cluster_of(b"").nodes.len(), 0);
    }

    #[test]
    fn messages_come_back_and_others_are_passed_over() {
        let by = [b'a'; 40];
        let slots = BTreeSet::from([0, 300, SLOTS - 1]);
        let question = question_of(by, &message_of(&[7], &slots)).unwrap();
        assert_eq!((question.at_us, &question.slots), (7, &slots));
        let message = message_of(&[7, 5], &slots);
        let answer = answer_of(by, &message).unwrap();
        assert_eq!((answer.asked_us, answer.left_ms), (7, 5));
        assert_eq!(answer.slots, slots);
        for end in 0..message.len() {
            let is_whole = end >= 16 && end % 2 == 0;
            assert_eq!(answer_of(by, &message[..end]).is_some(), is_whole, "{end}");
        }
        assert_eq!(question_of(by, &message_of(&[7], &[SLOTS].into())), None);
        assert_eq!(question_of(by, &[0; 7]), None);
    }
}
