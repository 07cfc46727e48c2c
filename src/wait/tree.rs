//! A sorted tree that takes little more memory than its entries, at every size, and has the sum of
//! any entries that stand together.
//!
//! A hash table that has just doubled is half empty, and so are the nodes of a `BTreeSet` that
//! grows at its end. There may be a million entries here, so the nodes are large and grow in small
//! steps. No change of the tree moves more than a few nodes.

// Long because: a tree is read in one piece.

use std::fmt::Debug;
use std::iter::from_fn;

/// What a tree is made of.
pub(super) trait Element: Copy + Debug {
    /// The order. No two entries of a tree have the same.
    type Key: Copy + Ord + Debug;
    /// What some entries that stand together are, as far as questions about them go.
    type Sum: Copy + PartialEq + Debug;

    /// How many entries a node has at most. A change sums the nodes on its way.
    const MOST: usize;
    /// By how many entries the memory of a node grows.
    const STEP: usize;
    /// The sum of no entries.
    const NONE: Self::Sum;

    fn key(&self) -> Self::Key;

    fn sum(&self) -> Self::Sum;

    /// The sum of some entries and those behind them.
    fn and(sum: Self::Sum, behind: Self::Sum) -> Self::Sum;
}

/// A set of values, which have no sum.
pub(super) type SortedSet<T> = Tree<T>;

impl<T: Copy + Ord + Debug> Element for T {
    type Key = T;
    type Sum = ();

    const MOST: usize = 64;
    const STEP: usize = 8;
    const NONE: () = ();

    fn key(&self) -> T {
        *self
    }

    fn sum(&self) {}

    fn and((): (), (): ()) {}
}

/// The tree. Each question and each change takes `O(log n)`.
#[derive(Clone, Debug)]
pub(super) struct Tree<E: Element> {
    root: Node<E>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node<E: Element> {
    Leaf(Vec<E>),
    Inner(Vec<Child<E>>),
}

/// A node, which is not empty.
#[derive(Clone, Debug)]
struct Child<E: Element> {
    /// No key below is smaller, and those of the child before are.
    first: E::Key,
    /// That of all entries below.
    sum: E::Sum,
    node: Node<E>,
}

impl<E: Element> Default for Tree<E> {
    fn default() -> Self {
        Self {
            root: Node::EMPTY,
            len: 0,
        }
    }
}

/// Changes.
impl<E: Element> Tree<E> {
    /// Adds an entry whose key is not there.
    pub(super) fn insert(&mut self, entry: E) {
        self.len = self.len.saturating_add(1);
        if let Some(right) = self.root.insert(entry) {
            let left = std::mem::replace(&mut self.root, Node::EMPTY);
            let both = Child::of(left).into_iter().chain([right]);
            self.root = Node::Inner(both.collect());
        }
    }

    pub(super) fn remove(&mut self, key: E::Key) -> Option<E> {
        let removed = self.root.remove(key)?;
        self.len = self.len.saturating_sub(1);
        while let Node::Inner(children) = &mut self.root {
            if children.len() > 1 {
                break;
            }
            let last = children.pop();
            self.root = last.map_or(Node::EMPTY, |child| child.node);
        }
        Some(removed)
    }

    pub(super) fn pop_first(&mut self) -> Option<E> {
        self.remove(self.first()?.key())
    }

    /// Changes an entry, but not its key.
    pub(super) fn change(&mut self, key: E::Key, by: impl FnOnce(&mut E)) {
        self.root.change(key, by);
    }
}

/// Questions.
impl<E: Element> Tree<E> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn first(&self) -> Option<E> {
        self.first_with(|_| true)
    }

    /// All entries in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = E> + '_ {
        self.root.iter()
    }

    pub(super) fn get(&self, key: E::Key) -> Option<E> {
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Inner(children) => &children.get(child_of(children, key))?.node,
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by_key(&key, E::key);
                    return entries.get(at.ok()?).copied();
                }
            };
        }
    }

    /// The entries whose keys are not smaller than this one, in their order. None is looked for
    /// before it is asked for: mostly only the first one is.
    pub(super) fn from(&self, key: E::Key) -> impl Iterator<Item = E> + '_ {
        let mut after = Some((key, false));
        from_fn(move || {
            let (bound, is_behind) = after.take()?;
            let is_skipped = |other: E::Key| other < bound || is_behind && other == bound;
            let next = self.root.first_but(&is_skipped)?;
            after = Some((next.key(), true));
            Some(next)
        })
    }

    /// The first entry whose sum is wanted. A sum is wanted if that of one of its entries is.
    pub(super) fn first_with(&self, is_wanted: impl Fn(E::Sum) -> bool) -> Option<E> {
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Inner(children) => {
                    let mut children = children.iter();
                    &children.find(|child| is_wanted(child.sum))?.node
                }
                Node::Leaf(entries) => {
                    let mut entries = entries.iter();
                    return entries.find(|entry| is_wanted(entry.sum())).copied();
                }
            };
        }
    }

    /// The last entry ahead of a key whose sum is wanted.
    pub(super) fn last_with(&self, key: E::Key, is_wanted: impl Fn(E::Sum) -> bool) -> Option<E> {
        self.root.last_with(key, &is_wanted)
    }

    /// The sum of the entries ahead of a key, but only to the first one that ends it, and that one.
    /// A sum ends it if that of one of its entries does.
    pub(super) fn sum_ahead_of(
        &self,
        key: E::Key,
        ends: impl Fn(E::Sum) -> bool,
    ) -> (E::Sum, Option<E>) {
        let (mut sum, mut node) = (E::NONE, &self.root);
        loop {
            match node {
                Node::Inner(children) => {
                    let whole = children.iter().take(child_of(children, key));
                    let passed = whole.take_while(|child| !ends(child.sum));
                    let passed = passed.inspect(|child| sum = E::and(sum, child.sum));
                    let Some(child) = children.get(passed.count()) else {
                        return (sum, None);
                    };
                    node = &child.node;
                }
                Node::Leaf(entries) => {
                    for entry in entries.iter().take_while(|entry| entry.key() < key) {
                        if ends(entry.sum()) {
                            return (sum, Some(*entry));
                        }
                        sum = E::and(sum, entry.sum());
                    }
                    return (sum, None);
                }
            }
        }
    }
}

impl<E: Element> Child<E> {
    fn of(node: Node<E>) -> Option<Self> {
        let first = match &node {
            Node::Leaf(entries) => entries.first()?.key(),
            Node::Inner(children) => children.first()?.first,
        };
        let sum = node.sum();
        Some(Self { first, sum, node })
    }
}

impl<E: Element> Node<E> {
    const EMPTY: Self = Self::Leaf(Vec::new());

    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn sum(&self) -> E::Sum {
        match self {
            Self::Leaf(entries) => entries.iter().map(E::sum).fold(E::NONE, E::and),
            Self::Inner(children) => {
                let sums = children.iter().map(|child| child.sum);
                sums.fold(E::NONE, E::and)
            }
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = E> + '_> {
        match self {
            Self::Leaf(entries) => Box::new(entries.iter().copied()),
            Self::Inner(children) => Box::new(children.iter().flat_map(|child| child.node.iter())),
        }
    }

    /// Adds an entry. Returns what comes behind this node if it had to be divided.
    fn insert(&mut self, entry: E) -> Option<Child<E>> {
        match self {
            Self::Leaf(entries) => {
                let at = entries.partition_point(|other| other.key() < entry.key());
                let right = insert_at::<E, _>(entries, at, entry)?;
                Child::of(Self::Leaf(right))
            }
            Self::Inner(children) => {
                let at = child_of(children, entry.key());
                let child = children.get_mut(at)?;
                child.first = child.first.min(entry.key());
                let divided = child.node.insert(entry);
                child.sum = child.node.sum();
                let right = insert_at::<E, _>(children, at.saturating_add(1), divided?)?;
                Child::of(Self::Inner(right))
            }
        }
    }

    fn remove(&mut self, key: E::Key) -> Option<E> {
        match self {
            Self::Leaf(entries) => {
                let at = entries.binary_search_by_key(&key, E::key).ok()?;
                let removed = entries.remove(at);
                give_back::<E, _>(entries);
                Some(removed)
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                let child = children.get_mut(at)?;
                let removed = child.node.remove(key)?;
                child.sum = child.node.sum();
                join(children, at);
                Some(removed)
            }
        }
    }

    fn change(&mut self, key: E::Key, by: impl FnOnce(&mut E)) {
        match self {
            Self::Leaf(entries) => {
                let at = entries.binary_search_by_key(&key, E::key);
                if let Some(entry) = at.ok().and_then(|at| entries.get_mut(at)) {
                    by(entry);
                }
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                if let Some(child) = children.get_mut(at) {
                    child.node.change(key, by);
                    child.sum = child.node.sum();
                }
            }
        }
    }

    /// The first entry that is not one of the first ones, which are skipped.
    fn first_but(&self, is_skipped: &impl Fn(E::Key) -> bool) -> Option<E> {
        match self {
            Self::Leaf(entries) => {
                let after = entries.partition_point(|entry| is_skipped(entry.key()));
                entries.get(after).copied()
            }
            Self::Inner(children) => {
                let after = children.partition_point(|child| is_skipped(child.first));
                let here = children.get(after.saturating_sub(1)..)?;
                here.iter()
                    .find_map(|child| child.node.first_but(is_skipped))
            }
        }
    }

    fn last_with(&self, key: E::Key, is_wanted: &impl Fn(E::Sum) -> bool) -> Option<E> {
        match self {
            Self::Leaf(entries) => {
                let mut ahead = entries.iter().rev();
                let last = ahead.find(|entry| entry.key() < key && is_wanted(entry.sum()));
                last.copied()
            }
            Self::Inner(children) => {
                let ahead = children.iter().rev();
                let mut ahead = ahead.filter(|child| child.first < key && is_wanted(child.sum));
                ahead.find_map(|child| child.node.last_with(key, is_wanted))
            }
        }
    }
}

/// Which child has a key, if any has.
fn child_of<E: Element>(children: &[Child<E>], key: E::Key) -> usize {
    let after = children.partition_point(|child| child.first <= key);
    after.saturating_sub(1)
}

/// Adds an entry where there is room for it. Otherwise it makes room, and returns what comes
/// behind. Entries that come last leave full nodes behind.
fn insert_at<E: Element, T>(all: &mut Vec<T>, at: usize, entry: T) -> Option<Vec<T>> {
    if all.len() < E::MOST {
        if all.len() == all.capacity() {
            all.reserve_exact(E::STEP);
        }
        all.insert(at, entry);
        return None;
    }
    let cut = if at < E::MOST { E::MOST / 2 } else { E::MOST };
    let mut right = all.split_off(cut);
    right.reserve_exact(E::STEP);
    give_back::<E, _>(all);
    match at.checked_sub(cut) {
        Some(at) => right.insert(at, entry),
        None => all.insert(at, entry),
    }
    Some(right)
}

/// Gives memory back of which much is not used.
fn give_back<E: Element, T>(all: &mut Vec<T>) {
    if all.capacity().saturating_sub(all.len()) > E::STEP.saturating_mul(2) {
        all.shrink_to(all.len().saturating_add(E::STEP));
    }
}

/// Drops a child that is empty now, and joins two that are small.
fn join<E: Element>(children: &mut Vec<Child<E>>, at: usize) {
    if children.get(at).is_some_and(|child| child.node.len() == 0) {
        children.remove(at);
        give_back::<E, _>(children);
        return;
    }
    let left = at.min(children.len().saturating_sub(2));
    let right = left.saturating_add(1);
    let len = |at: usize| children.get(at).map_or(E::MOST, |child| child.node.len());
    if len(left).saturating_add(len(right)) > (E::MOST / 4).saturating_mul(3) {
        return;
    }
    let mut behind = children.remove(right).node;
    give_back::<E, _>(children);
    if let Some(child) = children.get_mut(left) {
        match (&mut child.node, &mut behind) {
            (Node::Leaf(left), Node::Leaf(right)) => move_all::<E, _>(left, right),
            (Node::Inner(left), Node::Inner(right)) => move_all::<E, _>(left, right),
            _ => {} // All leaves are at one depth.
        }
        child.sum = child.node.sum();
    }
}

fn move_all<E: Element, T>(to: &mut Vec<T>, from: &mut Vec<T>) {
    to.reserve_exact(from.len().next_multiple_of(E::STEP));
    to.append(from);
}

#[cfg(test)]
mod tests;
