//! ```text
//! RWLOCK.WLOCK key token|* ttl [BLOCK timeout|NOTIFY timeout channel] [KEEP grace]
//!     [LINGER milliseconds]
//! ```

use super::acquire::{self, AskedMode};
use super::spec::Spec;
use crate::lock::Mode;

/// The description of RWLOCK.WLOCK for the server.
pub const SPEC: Spec = Spec {
    name: c"rwlock.wlock",
    summary: c"Takes the exclusive (writer's) hold of a lock and returns its fence.",
    ..acquire::WITHOUT_LIMIT
};

/// What RWLOCK.WLOCK asks for.
pub const WANTED: AskedMode = AskedMode::Mode(Mode::Exclusive);
