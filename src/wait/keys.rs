//! The keys of a request: one, or several that it is granted in one step.

use std::rc::Rc;

use super::key_ref::KeyRef;
use crate::lock::Mode;

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One key, in the mode of the request.
    One(KeyRef),
    /// All of these or none. The mode of the request is that of the first one.
    Several(Rc<Several>),
}

impl Keys {
    /// The key that messages name.
    pub fn first(&self) -> &KeyRef {
        match self {
            Self::One(key) => key,
            Self::Several(all) => &all.first().key_ref,
        }
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &KeyRef> {
        let (one, all) = match self {
            Self::One(key) => (Some(key), None),
            Self::Several(all) => (None, Some(all)),
        };
        let all = all.into_iter().flat_map(|all| all.iter());
        one.into_iter().chain(all.map(|one| &one.key_ref))
    }

    /// The keys, if they are asked for together, each with its mode.
    pub const fn several(&self) -> Option<&Rc<Several>> {
        match self {
            Self::One(_) => None,
            Self::Several(all) => Some(all),
        }
    }

    /// Whether the other ones are the same keys, in any order and any modes.
    pub(super) fn has_keys_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(other)) => one == other,
            (Self::Several(one), Self::Several(other)) => one.has_keys_of(other),
            _ => false,
        }
    }

    /// Whether the other ones are the same keys in the same modes, in any order.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Several(one), Self::Several(other)) => one.is_same_as(other),
            _ => self.has_keys_of(other),
        }
    }

    /// The same with other references to the keys.
    pub(super) fn map(&self, key_ref_of: impl Fn(&KeyRef) -> KeyRef) -> Self {
        match self {
            Self::One(key) => Self::One(key_ref_of(key)),
            Self::Several(all) => Self::Several(Rc::new(all.map(key_ref_of))),
        }
    }
}

/// One of the keys, and the mode in which it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The key.
    pub key_ref: KeyRef,
    /// Exclusive or shared.
    pub mode: Mode,
}

/// All of them, in the order in which they were named: one at least, and none twice. They are all
/// in one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several {
    first: Wanted,
    rest: Box<[Wanted]>,
}

impl Several {
    /// These keys, none of which is there twice. `None` if there is none.
    pub fn new(mut wanted: impl Iterator<Item = Wanted>) -> Option<Self> {
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
    fn is_same_as(&self, other: &Self) -> bool {
        self.count() == other.count()
            && self.first.key_ref.db == other.first.key_ref.db
            && self
                .iter()
                .all(|one| other.mode_of(&one.key_ref.name) == Some(one.mode))
    }

    /// Whether the other one has the same keys, in any order and any modes.
    fn has_keys_of(&self, other: &Self) -> bool {
        self.count() == other.count()
            && self.first.key_ref.db == other.first.key_ref.db
            && self
                .iter()
                .all(|one| other.mode_of(&one.key_ref.name).is_some())
    }

    /// The same with other references to the keys.
    fn map(&self, key_ref_of: impl Fn(&KeyRef) -> KeyRef) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Mode::{Exclusive, Shared};

    fn several(wanted: &[(&str, Mode)]) -> Option<Several> {
        let wanted = wanted.iter().map(|(name, mode)| Wanted {
            key_ref: KeyRef::new(0, name.as_bytes()),
            mode: *mode,
        });
        Several::new(wanted)
    }

    #[test]
    fn they_stay_in_their_order() {
        assert!(several(&[]).is_none());
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
