//! ```text
//! LOCK.RESETSTAT
//! ```

use super::spec::{Flag, KeyWords, Spec};

/// The description of LOCK.RESETSTAT for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.resetstat",
    summary: c"Resets the counters and percentiles of the section lock of INFO.",
    complexity: c"O(1)",
    since: c"0.3.0",
    flags: &[
        Flag::Admin,
        Flag::DenyScript,
        Flag::AllowLoading,
        Flag::AllowStale,
    ],
    keys: KeyWords::None,
    args: &[],
    // In a cluster it goes to all nodes, as CONFIG RESETSTAT does.
    tips: Some(c"request_policy:all_nodes response_policy:all_succeeded"),
    history: &[],
};
