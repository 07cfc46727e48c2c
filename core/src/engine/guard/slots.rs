//! The slots of this node of a cluster.

use std::collections::BTreeMap;

/// The name of a node of a cluster.
pub type NodeId = [u8; 40];

/// The slots of this node, as it sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// For each slot whether this node has it.
    pub mine: Vec<bool>,
    /// The slots that come or go key by key: whether they come, and the other node.
    pub moving: BTreeMap<u16, (bool, NodeId)>,
}

impl Cluster {
    pub(super) fn has(&self, slot: u16) -> bool {
        self.mine.get(usize::from(slot)) == Some(&true)
    }

    /// Whether this node has a slot, or gets it key by key.
    pub(super) fn knows(&self, slot: u16) -> bool {
        self.has(slot) || self.move_of(slot).is_some()
    }

    /// How a slot moves, if this node may grant something in it.
    pub(super) fn move_of(&self, slot: u16) -> Option<(bool, NodeId)> {
        let moving = self.moving.get(&slot).copied();
        moving.filter(|(comes, _)| *comes != self.has(slot))
    }
}
