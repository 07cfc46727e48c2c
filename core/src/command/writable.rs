//! ```text
//! LOCK._WRITABLE [key]
//! ```
//! Does nothing. The module calls it to learn whether the server accepts writes now: the server
//! checks a write command before it runs it.

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec};

/// The description of LOCK._WRITABLE for the server.
pub const SPEC: Spec = Spec {
    name: c"lock._writable",
    summary: c"Asks for the module whether the server accepts writes now. Refused to clients.",
    complexity: c"O(1)",
    since: c"0.3.0",
    // Not DenyScript: the module calls it with the checks of a script.
    flags: &[Flag::Write, Flag::Admin, Flag::Fast],
    keys: KeyWords::One(KeyUse::Updates),
    args: &[Arg::KEY.optional()],
    tips: None,
    history: &[],
};
