//! The keys of a request for several locks, which is granted all of them in one step or none.

use super::key_ref::KeyRef;
use crate::lock::Mode;

/// One of the keys, and the mode in which it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The key.
    pub key_ref: KeyRef,
    /// Exclusive or shared.
    pub mode: Mode,
}

/// Whether one of the names is there twice.
pub fn has_twice(mut names: Vec<&[u8]>) -> bool {
    names.sort_unstable();
    let mut pairs = names.windows(2);
    pairs.any(|two| matches!(two, [one, other] if one == other))
}

/// All of them, in the order in which they were named: one at least, and none twice. They are all
/// in one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several {
    first: Wanted,
    rest: Box<[Wanted]>,
}

impl Several {
    /// These keys. `None` if there is none, or one of them is there twice.
    pub fn new(wanted: Vec<Wanted>) -> Option<Self> {
        if has_twice(wanted.iter().map(|one| &*one.key_ref.name).collect()) {
            return None;
        }
        let mut wanted = wanted.into_iter();
        let first = wanted.next()?;
        Some(Self {
            first,
            rest: wanted.collect(),
        })
    }

    /// The key that messages name.
    pub const fn first(&self) -> &Wanted {
        &self.first
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &Wanted> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.rest.len().saturating_add(1)
    }

    /// The mode in which a key of their database is asked for.
    pub fn mode_of(&self, name: &[u8]) -> Option<Mode> {
        let mut all = self.iter();
        all.find(|one| *one.key_ref.name == *name)
            .map(|one| one.mode)
    }

    /// Whether the other one has the same keys in the same modes, in any order.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.count() == other.count()
            && self.first.key_ref.db == other.first.key_ref.db
            && self
                .iter()
                .all(|one| other.mode_of(&one.key_ref.name) == Some(one.mode))
    }

    /// Whether the other one has the same keys, in any order and any modes.
    pub fn has_keys_of(&self, other: &Self) -> bool {
        self.count() == other.count()
            && self.first.key_ref.db == other.first.key_ref.db
            && self
                .iter()
                .all(|one| other.mode_of(&one.key_ref.name).is_some())
    }

    /// The same with other references to the keys.
    pub(super) fn map(&self, key_ref_of: impl Fn(&KeyRef) -> KeyRef) -> Self {
        let map = |one: &Wanted| Wanted {
            key_ref: key_ref_of(&one.key_ref),
            mode: one.mode,
        };
        Self {
            first: map(&self.first),
            rest: self.rest.iter().map(map).collect(),
        }
    }
}

/// The keys of a request for `several` keys, or for this one.
pub(super) fn keys_of<'k>(
    key: &'k KeyRef,
    several: Option<&'k Several>,
) -> impl Iterator<Item = &'k KeyRef> {
    let one = several.is_none().then_some(key).into_iter();
    let all = several.into_iter().flat_map(Several::iter);
    one.chain(all.map(|one| &one.key_ref))
}

/// What the places of a token say about its request for several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It waits for none of them.
    None,
    /// Nobody listens at its place for exactly these keys, in any modes.
    Absent,
    /// Somebody listens at its place for exactly these keys, in the same modes.
    Listens,
    /// It waits for some of them by another request.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Mode::{Exclusive, Shared};

    fn several(wanted: &[(&str, Mode)]) -> Option<Several> {
        let wanted = wanted.iter().map(|(name, mode)| Wanted {
            key_ref: KeyRef::new(0, name.as_bytes()),
            mode: *mode,
        });
        Several::new(wanted.collect())
    }

    #[test]
    fn no_key_is_there_twice() {
        assert!(several(&[]).is_none());
        assert!(several(&[("a", Shared), ("b", Shared), ("a", Exclusive)]).is_none());
        let all = several(&[("b", Shared), ("a", Exclusive)]).unwrap();
        let names: Vec<_> = all.iter().map(|one| &one.key_ref.name[..]).collect();
        assert_eq!(names, [b"b", b"a"]);
        assert_eq!((all.first().mode, all.count()), (Shared, 2));
        assert_eq!(all.mode_of(b"a"), Some(Exclusive));
        assert_eq!(all.mode_of(b"c"), None);
    }

    #[test]
    fn the_order_does_not_matter_but_the_modes_do() {
        let one = several(&[("a", Exclusive), ("b", Shared)]).unwrap();
        let turned = several(&[("b", Shared), ("a", Exclusive)]).unwrap();
        let otherwise = several(&[("b", Exclusive), ("a", Exclusive)]).unwrap();
        let fewer = several(&[("a", Exclusive)]).unwrap();
        assert!(one.is_same_as(&turned) && one.has_keys_of(&turned));
        assert!(!one.is_same_as(&otherwise) && one.has_keys_of(&otherwise));
        assert!(!one.has_keys_of(&fewer) && !fewer.has_keys_of(&one));
    }
}
