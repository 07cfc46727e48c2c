//! The server's main thread: the only one that runs commands, timers and events. Others may free
//! values.

use std::cell::Cell;

thread_local! {
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the calling thread is the main one, at load.
pub(in crate::server) fn mark() {
    IS_MAIN.set(true);
}

/// Whether the calling thread is the main one.
pub(in crate::server) fn is_current() -> bool {
    IS_MAIN.get()
}
