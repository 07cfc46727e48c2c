//! ```text
//! RWLOCK.WLOCK key token ttl [BLOCK timeout]
//! ```
//! The same as [LOCK.ACQUIRE](super::acquire), under the name that users of reader-writer locks look for. The only shared
//! holder that calls it becomes exclusive; beside other readers it gets null, and keeps its share.

use crate::lock::Mode;

/// The mode that RWLOCK.WLOCK asks for.
pub const MODE: Mode = Mode::Exclusive;
