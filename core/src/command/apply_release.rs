//! ```text
//! LOCK._RELEASE key token
//! ```
//! The end of a lock's only hold. LOCK._APPLY could say the same; this is shorter, because it needs
//! no record.

use super::apply;
use super::spec::{Arg, Spec};

/// The description of LOCK._RELEASE for the server.
pub const SPEC: Spec = Spec {
    name: c"lock._release",
    summary: c"Carries a release to replicas and the append-only file. Refused to clients.",
    complexity: c"O(1)",
    args: &[Arg::KEY, Arg::text(c"token")],
    ..apply::SPEC
};
