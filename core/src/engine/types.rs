//! What the machine remembers of a server.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

/// The types that the machine remembers for a server.
pub trait Types: Default + 'static {
    /// A blocked client. The machine only compares it.
    type Client: Copy + Eq + Hash + Debug;
    /// How tables hash.
    type Hasher: BuildHasher + Default;
    /// How far a scan of a database has come.
    type Cursor;
}
