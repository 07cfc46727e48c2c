//! The tree against a set of the library, its room, and whether it is sound.

use std::collections::BTreeSet;

use super::*;

impl<E: Element> Tree<E> {
    /// Whether the sums and the bounds are right. For how many entries the leaves have room, and
    /// how deep they are.
    pub(in crate::wait) fn assert_tight(&self) -> (usize, usize) {
        assert_eq!(self.iter().count(), self.len);
        assert!(self
            .iter()
            .is_sorted_by(|one, other| one.key() < other.key()));
        self.root.assert_tight()
    }
}

impl<E: Element> Node<E> {
    fn assert_tight(&self) -> (usize, usize) {
        assert!(self.len() <= E::MOST);
        let children = match self {
            Self::Leaf(entries) => return (entries.capacity(), 0),
            Self::Inner(children) => children,
        };
        let mut all = Vec::new();
        for (n, child) in children.iter().enumerate() {
            assert!(child.node.len() > 0);
            assert_eq!(child.sum, child.node.sum());
            let next = children.get(n + 1);
            let mut keys = child.node.iter().map(|entry| entry.key());
            assert!(keys.all(|key| child.first <= key && next.is_none_or(|next| key < next.first)));
            all.push(child.node.assert_tight());
        }
        assert!(all.iter().all(|(_, depth)| *depth == all[0].1));
        (all.iter().map(|(room, _)| room).sum(), all[0].1 + 1)
    }
}

fn check(set: &SortedSet<u64>, expected: &BTreeSet<u64>) {
    set.assert_tight();
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
            assert_eq!(set.remove(value), expected.take(&value));
            assert_eq!(set.remove(value), None);
            if n % 50 == 0 {
                check(&set, &expected);
            }
        }
        while let Some(first) = expected.pop_first() {
            assert_eq!((set.first(), set.pop_first()), (Some(first), Some(first)));
            check(&set, &expected);
        }
        assert_eq!((set.pop_first(), set.assert_tight().1), (None, 0));
    }
}

#[test]
fn its_room_is_little_more_than_its_values_at_every_size() {
    for (value_of, most) in [((|n| n) as fn(u64) -> u64, 1.02), (mixed, 1.17)] {
        let mut set = SortedSet::default();
        for n in 1..100_000 {
            set.insert(value_of(n));
            if n % 1_000 == 0 {
                let (room, _) = set.assert_tight();
                let most = n as f64 * most + 16.0;
                assert!((room as f64) < most, "{room} for {n}");
            }
        }
        // The removal of values leaves no more room than that of their neighbours.
        for n in (1..100_000).filter(|n| n % 10 != 0) {
            assert!(set.remove(value_of(n)).is_some());
        }
        let (room, _) = set.assert_tight();
        assert!(room < set.len() * 3, "{room} for {}", set.len());
    }
}
