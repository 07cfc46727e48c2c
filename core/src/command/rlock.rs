//! ```text
//! RWLOCK.RLOCK key token|* ttl [BLOCK timeout|NOTIFY timeout channel] [KEEP grace]
//!     [LINGER milliseconds]
//! ```

use super::acquire::{self, AskedMode};
use super::spec::Spec;
use crate::lock::Mode;

/// The description of RWLOCK.RLOCK for the server.
pub const SPEC: Spec = Spec {
    name: c"rwlock.rlock",
    summary: c"Takes a shared (reader's) hold of a lock and returns its fence.",
    complexity: c"O(log(N)) for N shared holds, and O(log(M)) to wait behind M others.",
    ..acquire::WITHOUT_LIMIT
};

/// What RWLOCK.RLOCK asks for.
pub const WANTED: AskedMode = AskedMode::Mode(Mode::Shared);
