//! The clock that the core is told of: wall-clock time, which is what the server's own ttls are measured with.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::lock::Now;

/// The time now. A clock before 1970 reads as 1970.
pub(super) fn now() -> Now {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Now::from_micros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}
