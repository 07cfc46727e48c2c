//! A sorted set that takes little more memory than its values, at every size.
//!
//! A hash table that has just doubled is half empty, and so are the nodes of a `BTreeSet` that
//! grows at its end. There may be a million values here, so the nodes are large and grow in small
//! steps. No change of the set moves more than a few nodes.

use std::iter::from_fn;

/// How many entries a node has at most.
const MOST: usize = 64;
/// By how many entries the memory of a node grows.
const STEP: usize = 8;

/// The set. Each question and each change takes `O(log n)`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct SortedSet<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum Node<T> {
    Leaf(Vec<T>),
    Inner(Vec<Child<T>>),
}

/// A node, which is not empty.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Child<T> {
    /// No value below is smaller, and those of the child before are.
    first: T,
    node: Node<T>,
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self {
            root: Node::EMPTY,
            len: 0,
        }
    }
}

impl<T: Copy + Ord> SortedSet<T> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a value that is not there.
    pub(super) fn insert(&mut self, value: T) {
        self.len = self.len.saturating_add(1);
        if let Some(right) = self.root.insert(value) {
            let left = std::mem::replace(&mut self.root, Node::EMPTY);
            let first = left.first().unwrap_or(value);
            self.root = Node::Inner(vec![Child { first, node: left }, right]);
        }
    }

    /// Takes a value out. Whether it was there.
    pub(super) fn remove(&mut self, value: T) -> bool {
        if !self.root.remove(value) {
            return false;
        }
        self.len = self.len.saturating_sub(1);
        while let Node::Inner(children) = &mut self.root {
            if children.len() > 1 {
                break;
            }
            let last = children.pop();
            self.root = last.map_or(Node::EMPTY, |child| child.node);
        }
        true
    }

    pub(super) fn pop_first(&mut self) -> Option<T> {
        let first = self.first()?;
        self.remove(first).then_some(first)
    }

    pub(super) fn first(&self) -> Option<T> {
        self.root.first()
    }

    /// The values that are not smaller than this one, in their order.
    pub(super) fn from(&self, value: T) -> impl Iterator<Item = T> + '_ {
        let mut after = Some((value, false));
        from_fn(move || {
            let (bound, is_behind) = after.take()?;
            let is_skipped = |other: &T| *other < bound || is_behind && *other == bound;
            let next = self.root.first_but(&is_skipped)?;
            after = Some((next, true));
            Some(next)
        })
    }

    /// All values in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.root.iter()
    }
}

impl<T> Node<T> {
    const EMPTY: Self = Self::Leaf(Vec::new());
}

impl<T: Copy + Ord> Node<T> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(values) => values.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn first(&self) -> Option<T> {
        match self {
            Self::Leaf(values) => values.first().copied(),
            Self::Inner(children) => children.first()?.node.first(),
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = T> + '_> {
        match self {
            Self::Leaf(values) => Box::new(values.iter().copied()),
            Self::Inner(children) => Box::new(children.iter().flat_map(|child| child.node.iter())),
        }
    }

    /// The first value that is not one of the first ones, which are skipped.
    fn first_but(&self, is_skipped: &impl Fn(&T) -> bool) -> Option<T> {
        match self {
            Self::Leaf(values) => values.get(values.partition_point(is_skipped)).copied(),
            Self::Inner(children) => {
                let after = children.partition_point(|child| is_skipped(&child.first));
                let here = children.get(after.saturating_sub(1)..)?;
                here.iter()
                    .find_map(|child| child.node.first_but(is_skipped))
            }
        }
    }

    /// Adds a value. Returns what comes behind this node if it had to be divided.
    fn insert(&mut self, value: T) -> Option<Child<T>> {
        match self {
            Self::Leaf(values) => {
                let at = values.partition_point(|other| *other < value);
                let right = insert_at(values, at, value)?;
                let first = right.first().copied()?;
                let node = Self::Leaf(right);
                Some(Child { first, node })
            }
            Self::Inner(children) => {
                let at = child_of(children, value);
                let child = children.get_mut(at)?;
                child.first = child.first.min(value);
                let divided = child.node.insert(value)?;
                let right = insert_at(children, at.saturating_add(1), divided)?;
                let first = right.first()?.first;
                let node = Self::Inner(right);
                Some(Child { first, node })
            }
        }
    }

    fn remove(&mut self, value: T) -> bool {
        match self {
            Self::Leaf(values) => {
                let Ok(at) = values.binary_search(&value) else {
                    return false;
                };
                values.remove(at);
                give_back(values);
                true
            }
            Self::Inner(children) => {
                let at = child_of(children, value);
                let child = children.get_mut(at);
                let removed = child.is_some_and(|child| child.node.remove(value));
                if removed {
                    join(children, at);
                }
                removed
            }
        }
    }
}

/// Which child has a value, if any has.
fn child_of<T: Ord>(children: &[Child<T>], value: T) -> usize {
    let after = children.partition_point(|child| child.first <= value);
    after.saturating_sub(1)
}

/// Adds an entry where there is room for it. Otherwise it makes room, and returns what comes
/// behind. Values that come last leave full nodes behind.
fn insert_at<T>(all: &mut Vec<T>, at: usize, entry: T) -> Option<Vec<T>> {
    if all.len() < MOST {
        if all.len() == all.capacity() {
            all.reserve_exact(STEP);
        }
        all.insert(at, entry);
        return None;
    }
    let cut = if at < MOST { MOST / 2 } else { MOST };
    let mut right = all.split_off(cut);
    right.reserve_exact(STEP);
    give_back(all);
    match at.checked_sub(cut) {
        Some(at) => right.insert(at, entry),
        None => all.insert(at, entry),
    }
    Some(right)
}

/// Gives memory back of which much is not used.
fn give_back<T>(all: &mut Vec<T>) {
    if all.capacity().saturating_sub(all.len()) > 2 * STEP {
        all.shrink_to(all.len().saturating_add(STEP));
    }
}

/// Drops a child that is empty now, and joins two that are small.
fn join<T: Copy + Ord>(children: &mut Vec<Child<T>>, at: usize) {
    if children.get(at).is_some_and(|child| child.node.len() == 0) {
        children.remove(at);
        give_back(children);
        return;
    }
    let left = at.min(children.len().saturating_sub(2));
    let right = left.saturating_add(1);
    let len = |at: usize| children.get(at).map_or(MOST, |child| child.node.len());
    if len(left).saturating_add(len(right)) > MOST / 4 * 3 {
        return;
    }
    let mut behind = children.remove(right).node;
    give_back(children);
    match (
        children.get_mut(left).map(|child| &mut child.node),
        &mut behind,
    ) {
        (Some(Node::Leaf(left)), Node::Leaf(right)) => move_all(left, right),
        (Some(Node::Inner(left)), Node::Inner(right)) => move_all(left, right),
        _ => {} // All leaves are at one depth.
    }
}

fn move_all<T>(to: &mut Vec<T>, from: &mut Vec<T>) {
    to.reserve_exact(from.len().next_multiple_of(STEP));
    to.append(from);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// How many values the nodes have room for, and how deep the leaves are.
    fn room_and_depth(node: &Node<u64>) -> (usize, usize) {
        assert!(node.len() <= MOST);
        let Node::Inner(children) = node else {
            let Node::Leaf(values) = node else { panic!() };
            return (values.capacity(), 0);
        };
        let mut all = Vec::new();
        for (n, child) in children.iter().enumerate() {
            assert!(child.node.len() > 0 && child.first <= child.node.first().unwrap());
            if let Some(next) = children.get(n + 1) {
                let skipped = child.node.first_but(&|value| *value < next.first);
                assert_eq!(skipped, None);
            }
            all.push(room_and_depth(&child.node));
        }
        assert!(all.iter().all(|(_, depth)| *depth == all[0].1));
        (all.iter().map(|(room, _)| room).sum(), all[0].1 + 1)
    }

    fn check(set: &SortedSet<u64>, expected: &BTreeSet<u64>) {
        room_and_depth(&set.root);
        assert_eq!(set.len(), expected.len());
        assert_eq!(set.is_empty(), expected.is_empty());
        assert!(set.iter().eq(expected.iter().copied()));
        for from in [0, 499, 500, 501, 1_000_000] {
            let range = expected.range(from..).copied();
            assert!(set.from(from).eq(range), "from {from}");
        }
    }

    fn mixed(n: u64) -> u64 {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
    }

    #[test]
    fn it_has_what_was_added_and_not_removed_in_any_order() {
        for (step, value_of) in [
            (1, (|n| n) as fn(u64) -> u64),
            (7, |n| 20_000 - n),
            (3, mixed),
        ] {
            let (mut set, mut expected) = (SortedSet::default(), BTreeSet::new());
            for n in 0..9_000 {
                set.insert(value_of(n));
                expected.insert(value_of(n));
                if n % 500 == 0 || n < 70 {
                    check(&set, &expected);
                }
            }
            assert_eq!(expected.len(), 9_000);
            for n in (0..9_000).map(|n| n * step % 9_000) {
                if n % 9 == 0 {
                    let first = expected.pop_first();
                    assert_eq!(set.pop_first(), first);
                    continue;
                }
                let value = value_of(n);
                assert_eq!(set.remove(value), expected.remove(&value));
                assert!(!set.remove(value));
                if n % 50 == 0 {
                    check(&set, &expected);
                }
            }
            while let Some(first) = expected.pop_first() {
                assert_eq!((set.first(), set.pop_first()), (Some(first), Some(first)));
                check(&set, &expected);
            }
            assert_eq!((set.pop_first(), room_and_depth(&set.root).1), (None, 0));
        }
    }

    #[test]
    fn its_room_is_little_more_than_its_values_at_every_size() {
        for (value_of, most) in [((|n| n) as fn(u64) -> u64, 1.02), (mixed, 1.17)] {
            let mut set = SortedSet::default();
            for n in 1..100_000 {
                set.insert(value_of(n));
                if n % 1_000 == 0 {
                    let (room, _) = room_and_depth(&set.root);
                    let most = n as f64 * most + 16.0;
                    assert!((room as f64) < most, "{room} for {n}");
                }
            }
            // The removal of values leaves no more room than that of their neighbours.
            for n in (1..100_000).filter(|n| n % 10 != 0) {
                assert!(set.remove(value_of(n)));
            }
            let (room, _) = room_and_depth(&set.root);
            assert!(room < set.len() * 3, "{room} for {}", set.len());
        }
    }
}
