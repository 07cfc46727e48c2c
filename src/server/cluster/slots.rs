//! Slots of a cluster, as the guard needs them: those of this node, and those that move.

use crate::server::api::Caller;
use redis_lock_core::command::integer;
use redis_lock_core::engine::guard::slots::{Cluster, NodeId};
use redis_lock_core::lock::slot::SLOTS;

/// The slots of this node, by the text of CLUSTER NODES.
pub(in crate::server) fn cluster_of(text: &[u8]) -> Cluster {
    let mut cluster = Cluster {
        mine: vec![false; usize::from(SLOTS)],
        ..Cluster::default()
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    let words = lines.find_map(slots_of_myself).unwrap_or_default();
    for word in words.split(|byte| *byte == b' ') {
        read_slots(&mut cluster, word);
    }
    cluster
}

/// The words about slots in the line of this node.
fn slots_of_myself(line: &[u8]) -> Option<&[u8]> {
    // The id, the address, the flags, four numbers and the state of the link.
    let mut words = line.splitn(9, |byte| *byte == b' ');
    let flags = words.nth(2)?;
    let is_myself = flags.split(|byte| *byte == b',').any(|is| is == b"myself");
    is_myself.then(|| words.nth(5).unwrap_or_default())
}

/// Reads `7`, `0-5460`, `[93-<-id]` or `[77->-id]`.
fn read_slots(cluster: &mut Cluster, word: &[u8]) {
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
        if let (Some(slot), Ok(id)) = (slot(number), NodeId::try_from(id)) {
            match arrow {
                b"-<-" => drop(cluster.moving.insert(slot, (true, id))),
                b"->-" => drop(cluster.moving.insert(slot, (false, id))),
                _ => {}
            }
        }
        return;
    }
    let mut ends = word.split(|byte| *byte == b'-').map(slot);
    if let Some(Some(first)) = ends.next() {
        let last = ends.next().flatten().unwrap_or(first);
        if let Some(mine) = cluster.mine.get_mut(usize::from(first)..=usize::from(last)) {
            mine.fill(true);
        }
    }
}

/// The slots of this node. `None` if the server does not say.
pub(in crate::server) fn cluster(caller: &mut Caller<'_>) -> Option<Cluster> {
    let reply = caller.call_with(c"CLUSTER", &[b"NODES"]).ok()?;
    reply.part().text().map(cluster_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_this_node_are_read() {
        let id = |digit: &str| digit.repeat(40);
        let (me, other, third) = (id("a"), id("b"), id("c"));
        let text = format!(
            "{other} 127.0.0.1:1@2,host slave,fail {me} 0 0 3 connected\n\
             {third} :0@0 master,noaddr - 0 0 1 disconnected 7 9-11 99999 x-y\n\
             {me} 127.0.0.1:3@4 myself,master - 0 0 2 connected 0-5 16383 \
             [3->-{third}] [8-<-{third}] [1-?-{third}] [2] [ [x->-{third}]\n"
        );
        let cluster = cluster_of(text.as_bytes());
        let third = NodeId::try_from(third.as_bytes()).unwrap();
        for (slot, is_mine) in [(0, true), (5, true), (6, false), (7, false), (16_383, true)] {
            assert_eq!(cluster.mine[slot], is_mine, "{slot}");
        }
        assert_eq!(
            cluster.moving,
            [(3, (false, third)), (8, (true, third))].into()
        );
        assert!(!cluster_of(b"").mine.contains(&true));
    }
}
