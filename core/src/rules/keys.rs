//! The keys of a request: one, or several that it is granted in one step.

use std::rc::Rc;

use crate::lock::Mode;
use crate::rules::key_ref::KeyRef;

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
    #[inline]
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

    /// Whether the other ones are the same keys, in any order, and where `in_modes` says so in the
    /// same modes.
    pub(crate) fn are(&self, other: &Self, in_modes: bool) -> bool {
        let (Self::Several(own), Self::Several(others)) = (self, other) else {
            return self == other;
        };
        let is_there = |one: &Wanted| {
            let mode = others.mode_of(&one.key_ref.name);
            mode.is_some_and(|mode| !in_modes || mode == one.mode)
        };
        own.count() == others.count()
            && own.first.key_ref.db == others.first.key_ref.db
            && own.iter().all(is_there)
    }

    /// The same with other references to the keys.
    pub(crate) fn map(&self, key_ref_of: impl Fn(&KeyRef) -> KeyRef) -> Self {
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
        let keys = |wanted: &[(&str, Mode)]| Keys::Several(Rc::new(several(wanted).unwrap()));
        let one = keys(&[("a", Exclusive), ("b", Shared)]);
        let turned = keys(&[("b", Shared), ("a", Exclusive)]);
        let otherwise = keys(&[("b", Exclusive), ("a", Exclusive)]);
        let fewer = keys(&[("a", Exclusive)]);
        assert!(one.are(&turned, true) && one.are(&turned, false));
        assert!(!one.are(&otherwise, true) && one.are(&otherwise, false));
        assert!(!one.are(&fewer, false) && !fewer.are(&one, false));
    }
}
