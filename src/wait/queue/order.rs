//! The places of one key in the order of their tickets: a B-tree with sums, so that no question
//! walks along the line.

// Long because: the tree and its tests belong together.

use crate::lock::Mode;
use crate::wait::place::{Part, PlaceId, Ticket};

/// How many entries a node has at most.
const MOST: usize = 16;

/// A place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) ticket: Ticket,
    pub(super) id: PlaceId,
    pub(super) part: Part,
}

/// What some places that stand together are for those behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    /// How many of them are absent, and let others pass.
    absent: u32,
    /// The smallest limit of the absent permits; [`Mode::ANY`] where there is none.
    pub(super) limit: u32,
    /// How many of the absent ones stand ahead of the last permit.
    ahead_of_last: u32,
    /// Whether one of them lets nobody pass.
    stops: bool,
}

impl Sum {
    const NONE: Self = Self {
        absent: 0,
        limit: Mode::ANY,
        ahead_of_last: 0,
        stops: false,
    };

    pub(super) fn of(part: Part) -> Self {
        let limit = part.tolerates().unwrap_or(Mode::ANY);
        Self {
            absent: part.tolerates().is_some().into(),
            limit,
            ahead_of_last: 0,
            stops: part == Part::STOPS,
        }
    }

    fn and(self, behind: Self) -> Self {
        Self {
            absent: self.absent.saturating_add(behind.absent),
            limit: self.limit.min(behind.limit),
            ahead_of_last: match behind.has_permit() {
                true => self.absent.saturating_add(behind.ahead_of_last),
                false => self.ahead_of_last,
            },
            stops: self.stops || behind.stops,
        }
    }

    pub(super) fn absent(&self) -> usize {
        usize::try_from(self.absent).unwrap_or(usize::MAX)
    }

    pub(super) fn ahead_of_last(&self) -> usize {
        usize::try_from(self.ahead_of_last).unwrap_or(usize::MAX)
    }

    pub(super) const fn has_permit(&self) -> bool {
        self.limit < Mode::ANY
    }

    const fn is_no_share(&self) -> bool {
        self.stops || self.has_permit()
    }
}

/// All places. Each question and each change takes `O(log n)`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Order {
    root: Node,
    len: usize,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum Node {
    Leaf(Vec<Entry>),
    Inner(Vec<Child>),
}

/// A node, which is not empty.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Child {
    /// No ticket below is smaller, and those of the child before are.
    first: Ticket,
    /// That of all entries below.
    sum: Sum,
    node: Node,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            root: Node::Leaf(Vec::new()),
            len: 0,
        }
    }
}

/// Changes.
impl Order {
    /// Adds a place. No other one has its ticket.
    pub(super) fn insert(&mut self, entry: Entry) {
        self.len = self.len.saturating_add(1);
        if let Some(right) = self.root.insert(entry) {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            let left = Child::of(Ticket(0), left);
            self.root = Node::Inner(vec![left, right]);
        }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Entry> {
        let removed = self.root.remove(ticket)?;
        self.len = self.len.saturating_sub(1);
        if let Node::Inner(children) = &mut self.root {
            if children.len() <= 1 {
                let last = children.pop();
                self.root = last.map_or_else(|| Node::Leaf(Vec::new()), |child| child.node);
            }
        }
        Some(removed)
    }

    /// Notes what a place is for those behind it.
    pub(super) fn set(&mut self, ticket: Ticket, part: Part) {
        self.root.set(ticket, part);
    }
}

/// Questions.
impl Order {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Entry> {
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Inner(children) => &children.get(child_of(children, ticket))?.node,
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by_key(&ticket, |entry| entry.ticket);
                    return entries.get(at.ok()?);
                }
            };
        }
    }

    /// All places in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.root.iter()
    }

    /// The first place.
    pub(super) fn first(&self) -> Option<&Entry> {
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Inner(children) => &children.first()?.node,
                Node::Leaf(entries) => return entries.first(),
            };
        }
    }

    /// The first place that is no absent share.
    pub(super) fn first_but_shares(&self) -> Option<PlaceId> {
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Inner(children) => {
                    let mut children = children.iter();
                    &children.find(|child| child.sum.is_no_share())?.node
                }
                Node::Leaf(entries) => {
                    let mut entries = entries.iter();
                    let first = entries.find(|entry| Sum::of(entry.part).is_no_share());
                    return first.map(|entry| entry.id);
                }
            };
        }
    }

    /// The places ahead of a ticket, but only to the first one that lets nobody pass, and that one.
    pub(super) fn ahead_of(&self, ticket: Ticket) -> (Sum, Option<PlaceId>) {
        let (mut sum, mut node) = (Sum::NONE, &self.root);
        loop {
            match node {
                Node::Inner(children) => {
                    let last = child_of(children, ticket);
                    let whole = children.iter().take(last);
                    let passed = whole.take_while(|child| !child.sum.stops);
                    let passed = passed.inspect(|child| sum = sum.and(child.sum)).count();
                    let Some(child) = children.get(passed) else {
                        return (sum, None);
                    };
                    node = &child.node;
                }
                Node::Leaf(entries) => {
                    for entry in entries.iter().take_while(|entry| entry.ticket < ticket) {
                        if entry.part == Part::STOPS {
                            return (sum, Some(entry.id));
                        }
                        sum = sum.and(Sum::of(entry.part));
                    }
                    return (sum, None);
                }
            }
        }
    }

    /// The last absent permit ahead of a ticket.
    pub(super) fn last_permit_ahead_of(&self, ticket: Ticket) -> Option<&Entry> {
        self.root.last_ahead_of(ticket, &Sum::has_permit)
    }

    /// The places ahead of a ticket, the last one first.
    pub(super) fn ahead_of_in_turn(&self, ticket: Ticket) -> impl Iterator<Item = &Entry> {
        let ahead_of = |ticket| self.root.last_ahead_of(ticket, &|_| true);
        std::iter::successors(ahead_of(ticket), move |entry| ahead_of(entry.ticket))
    }
}

impl Child {
    fn of(first: Ticket, node: Node) -> Self {
        let sum = node.sum();
        Self { first, sum, node }
    }
}

/// Which child has a ticket, if any has.
fn child_of(children: &[Child], ticket: Ticket) -> usize {
    let after = children.partition_point(|child| child.first <= ticket);
    after.saturating_sub(1)
}

/// Adds an entry where there is room for it. Otherwise it makes room, and returns what comes
/// behind. Most places come last, so the nodes that they leave behind are full.
fn insert_at<T>(all: &mut Vec<T>, at: usize, entry: T) -> Option<Vec<T>> {
    if all.len() < MOST {
        all.insert(at, entry);
        return None;
    }
    let cut = if at < MOST { MOST / 2 } else { MOST };
    let mut right = all.split_off(cut);
    match at.checked_sub(cut) {
        Some(at) => right.insert(at, entry),
        None => all.insert(at, entry),
    }
    Some(right)
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn sum(&self) -> Sum {
        match self {
            Self::Leaf(entries) => {
                let sums = entries.iter().map(|entry| Sum::of(entry.part));
                sums.fold(Sum::NONE, Sum::and)
            }
            Self::Inner(children) => {
                let sums = children.iter().map(|child| child.sum);
                sums.fold(Sum::NONE, Sum::and)
            }
        }
    }

    /// Adds an entry. Returns what comes behind this node if it had to be divided.
    fn insert(&mut self, entry: Entry) -> Option<Child> {
        match self {
            Self::Leaf(entries) => {
                let at = entries.partition_point(|other| other.ticket < entry.ticket);
                let right = insert_at(entries, at, entry)?;
                let first = right.first()?.ticket;
                Some(Child::of(first, Self::Leaf(right)))
            }
            Self::Inner(children) => {
                let at = child_of(children, entry.ticket);
                let child = children.get_mut(at)?;
                child.first = child.first.min(entry.ticket);
                let divided = child.node.insert(entry);
                child.sum = child.node.sum();
                let right = insert_at(children, at.saturating_add(1), divided?)?;
                let first = right.first()?.first;
                Some(Child::of(first, Self::Inner(right)))
            }
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Entry> {
        match self {
            Self::Leaf(entries) => {
                let at = entries.binary_search_by_key(&ticket, |entry| entry.ticket);
                Some(entries.remove(at.ok()?))
            }
            Self::Inner(children) => {
                let at = child_of(children, ticket);
                let child = children.get_mut(at)?;
                let removed = child.node.remove(ticket)?;
                child.sum = child.node.sum();
                join(children, at);
                Some(removed)
            }
        }
    }

    fn set(&mut self, ticket: Ticket, part: Part) {
        match self {
            Self::Leaf(entries) => {
                let at = entries.binary_search_by_key(&ticket, |entry| entry.ticket);
                if let Some(entry) = at.ok().and_then(|at| entries.get_mut(at)) {
                    entry.part = part;
                }
            }
            Self::Inner(children) => {
                let at = child_of(children, ticket);
                if let Some(child) = children.get_mut(at) {
                    child.node.set(ticket, part);
                    child.sum = child.node.sum();
                }
            }
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = &Entry> + '_> {
        match self {
            Self::Leaf(entries) => Box::new(entries.iter()),
            Self::Inner(children) => Box::new(children.iter().flat_map(|child| child.node.iter())),
        }
    }

    fn last_ahead_of(&self, ticket: Ticket, is_wanted: &dyn Fn(&Sum) -> bool) -> Option<&Entry> {
        match self {
            Self::Leaf(entries) => {
                let mut ahead = entries.iter().rev();
                ahead.find(|entry| entry.ticket < ticket && is_wanted(&Sum::of(entry.part)))
            }
            Self::Inner(children) => {
                let ahead = children.iter().rev();
                let mut ahead = ahead.filter(|child| child.first < ticket && is_wanted(&child.sum));
                ahead.find_map(|child| child.node.last_ahead_of(ticket, is_wanted))
            }
        }
    }
}

/// Drops a child that is empty now, and joins two that are small.
fn join(children: &mut Vec<Child>, at: usize) {
    if children.get(at).is_some_and(|child| child.node.len() == 0) {
        children.remove(at);
        return;
    }
    let left = at.min(children.len().saturating_sub(2));
    let right = left.saturating_add(1);
    let len = |at: usize| children.get(at).map_or(MOST, |child| child.node.len());
    if len(left).saturating_add(len(right)) > MOST / 2 {
        return;
    }
    let mut behind = children.remove(right).node;
    if let Some(child) = children.get_mut(left) {
        match (&mut child.node, &mut behind) {
            (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
            (Node::Inner(left), Node::Inner(right)) => left.append(right),
            _ => {} // All leaves are at one depth.
        }
        child.sum = child.node.sum();
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
impl Order {
    /// Whether the sums and the bounds are right. How deep the leaves are.
    pub(super) fn assert_tight(&self) -> usize {
        assert_eq!(self.iter().count(), self.len);
        assert!(self
            .iter()
            .is_sorted_by(|one, other| one.ticket < other.ticket));
        self.root.assert_tight()
    }
}

#[cfg(test)]
impl Node {
    fn assert_tight(&self) -> usize {
        assert!(self.len() <= MOST);
        let Self::Inner(children) = self else {
            return 0;
        };
        let depths = children.iter().map(|child| {
            assert!(child.node.len() > 0);
            assert_eq!(child.sum, child.node.sum());
            let mut tickets = child.node.iter().map(|entry| entry.ticket);
            assert!(tickets.all(|ticket| child.first <= ticket));
            child.node.assert_tight()
        });
        let depths: Vec<_> = depths.collect();
        assert!(depths.iter().all(|depth| *depth == depths[0]));
        for (n, child) in children.iter().enumerate().skip(1) {
            let mut before = children[n - 1].node.iter();
            assert!(before.all(|entry| entry.ticket < child.first));
        }
        depths[0] + 1
    }
}
