//! ```text
//! RWLOCK.RLOCK key token ttl [BLOCK timeout]
//! ```
//! Takes a shared hold, beside other shared ones. The reply is as in [LOCK.ACQUIRE](super::acquire). The exclusive holder that
//! calls it becomes a shared holder, with the same fence.

use crate::lock::Mode;

/// The mode that RWLOCK.RLOCK asks for.
pub const MODE: Mode = Mode::Shared;
