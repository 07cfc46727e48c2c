//! The server's one fence clock. The module runs in the server's main thread only (values may be freed on another, which does
//! not come here), so a thread-local is the whole server's.

use std::cell::RefCell;

use crate::lock::{Fence, FenceClock};

thread_local! {
    static FENCES: RefCell<FenceClock> = const { RefCell::new(FenceClock::new()) };
}

/// Lends the clock to `decide`, which must not call the module API.
pub(super) fn with<R>(decide: impl FnOnce(&mut FenceClock) -> R) -> R {
    FENCES.with_borrow_mut(decide)
}

/// Takes notice of a fence that came by replication, from a file or by RESTORE.
pub(super) fn observe(fence: Fence) {
    with(|fences| fences.observe(fence));
}

/// The largest fence given or seen.
pub(super) fn last() -> Option<Fence> {
    with(|fences| fences.last())
}
