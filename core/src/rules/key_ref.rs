//! A key in a database.

use std::rc::Rc;

/// The number of a key that is waited for. It may be given again once nobody waits for the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyId(pub(crate) u32);

impl KeyId {
    /// That of a slot in the table of keys. There are never 2^32 of them.
    pub(crate) fn of(index: usize) -> Self {
        debug_assert!(u32::try_from(index).is_ok());
        Self(index as u32)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A key in a database. Cheap to clone: all references to one key share its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef {
    /// The number of the database.
    pub db: i32,
    /// The key's name.
    pub name: Rc<[u8]>,
}

impl KeyRef {
    /// The key of this name.
    pub fn new(db: i32, name: &[u8]) -> Self {
        Self {
            db,
            name: name.into(),
        }
    }

    /// Whether it is the key of this name.
    pub fn is(&self, db: i32, name: &[u8]) -> bool {
        self.db == db && (std::ptr::eq(&*self.name, name) || *self.name == *name)
    }

    /// Follows SWAPDB. False when it is about other databases.
    pub fn swap_db(&mut self, one: i32, other: i32) -> bool {
        self.db = match self.db {
            db if db == one => other,
            db if db == other => one,
            _ => return false,
        };
        true
    }
}
