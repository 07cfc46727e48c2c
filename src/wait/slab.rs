//! Values under small numbers that are given again. Growth moves little: a large table is many
//! small ones.

use std::num::NonZeroU32;

/// The number of a value, from 1. It may be given again once the value is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(NonZeroU32);

impl Id {
    /// The smallest one.
    pub(super) const MIN: Self = Self(NonZeroU32::MIN);
}

#[derive(Clone, Debug)]
enum Slot<T> {
    Used(T),
    /// The next free one.
    Free(Option<Id>),
}

/// The table.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    /// All are full but the last one.
    chunks: Vec<Vec<Slot<T>>>,
    /// Those without a value that are to be freed, or filled again.
    spare: Vec<Vec<Slot<T>>>,
    free: Option<Id>,
    len: usize,
}

impl Id {
    /// The slot, counted from 0.
    pub(super) fn index(self) -> usize {
        usize::try_from(self.0.get().saturating_sub(1)).unwrap_or(usize::MAX)
    }
}

/// How many values a chunk has.
const CHUNK: usize = 512;
/// How many values an empty table has room for.
const SPARE: usize = 16;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            spare: Vec::new(),
            free: None,
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, id: Id) -> Option<&T> {
        let (chunk, at) = position(id);
        match self.chunks.get(chunk)?.get(at)? {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        match self.slot(id)? {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// Keeps a value. `None` when there are no numbers left.
    pub(super) fn insert(&mut self, value: T) -> Option<Id> {
        let free = self.free;
        if let Some((id, slot)) = free.and_then(|id| Some((id, self.slot(id)?))) {
            if let Slot::Free(next) = std::mem::replace(slot, Slot::Used(value)) {
                self.free = next;
            }
            self.len = self.len.saturating_add(1);
            return Some(id);
        }
        // No slot is free, so there are as many slots as values.
        let number = self.len.saturating_add(1);
        let id = Id(NonZeroU32::new(u32::try_from(number).ok()?)?);
        if self.chunks.last().is_none_or(|last| last.len() >= CHUNK) {
            let mut spare = self.spare.pop().unwrap_or_default();
            spare.clear();
            self.chunks.push(spare);
        }
        self.chunks.last_mut()?.push(Slot::Used(value));
        self.len = self.len.saturating_add(1);
        Some(id)
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        let free = self.free;
        let slot = self.slot(id)?;
        if matches!(slot, Slot::Free(_)) {
            return None;
        }
        let removed = std::mem::replace(slot, Slot::Free(free));
        self.free = Some(id);
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.clear();
        }
        match removed {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// Empties a table without values. It keeps the memory for a few: one waiter after the other
    /// allocates nothing. The memory of a million is given back by [`Slab::free_spare`].
    fn clear(&mut self) {
        while self.chunks.len() > 1 {
            self.spare.extend(self.chunks.pop());
        }
        if let Some(first) = self.chunks.first_mut() {
            first.clear();
            first.shrink_to(SPARE);
        }
        self.free = None;
    }

    /// Whether there is memory to give back.
    pub(super) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Gives a little memory back.
    pub(super) fn free_spare(&mut self) {
        drop(self.spare.pop());
        if self.spare.is_empty() {
            self.spare = Vec::new();
        }
    }

    /// How many values it has room for, as far as it has grown.
    pub(super) fn slots(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1).saturating_mul(CHUNK);
        full.saturating_add(self.chunks.last().map_or(0, Vec::len))
    }

    /// The value in the `n`th slot, counted from 0.
    pub(super) fn nth(&self, n: usize) -> Option<(Id, &T)> {
        let number = u32::try_from(n.saturating_add(1)).ok()?;
        let id = Id(NonZeroU32::new(number)?);
        Some((id, self.get(id)?))
    }

    fn slot(&mut self, id: Id) -> Option<&mut Slot<T>> {
        let (chunk, at) = position(id);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }
}

fn position(id: Id) -> (usize, usize) {
    let n = id.index();
    (n / CHUNK, n % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_again_and_an_empty_table_gives_its_memory_back() {
        let mut slab = Slab::default();
        let ids: Vec<Id> = (0..2_000).map(|n| slab.insert(n).unwrap()).collect();
        assert_eq!((slab.len(), slab.chunks.len()), (2_000, 4));
        assert_eq!(
            (slab.slots(), slab.nth(700)),
            (2_000, Some((ids[700], &700)))
        );
        assert_eq!(slab.remove(ids[700]), Some(700));
        assert_eq!(slab.remove(ids[700]), None);
        assert_eq!((slab.slots(), slab.nth(700)), (2_000, None));
        assert_eq!(slab.remove(ids[3]), Some(3));
        assert_eq!(slab.insert(9_000), Some(ids[3]));
        assert_eq!(slab.insert(9_001), Some(ids[700]));
        assert_eq!(
            (slab.get(ids[3]), slab.get(ids[4])),
            (Some(&9_000), Some(&4))
        );
        assert_eq!((slab.len(), slab.chunks.len()), (2_000, 4));
        ids.iter()
            .for_each(|id| assert!(slab.remove(*id).is_some()));
        assert_eq!((slab.len(), slab.slots()), (0, 0));
        assert_eq!(slab.get(ids[3]), None);
        // The memory goes a little at a time, or is used again.
        assert_eq!(slab.spare.len(), 3);
        let again = (0..600).map(|n| slab.insert(n).unwrap());
        assert_eq!(again.collect::<Vec<_>>(), ids[..600]);
        assert_eq!((slab.spare.len(), slab.get(ids[599])), (2, Some(&599)));
        (0..2).for_each(|_| slab.free_spare());
        assert!(!slab.has_spare() && slab.spare.capacity() == 0);
    }
}
