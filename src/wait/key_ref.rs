//! A key in a database.

use std::rc::Rc;

use super::slab::Id;

/// The number of a key that is waited for. It may be given again once nobody waits for the key.
pub(super) type KeyId = Id;

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
