//! `redis-lock`: a Redis / Valkey module with locks as a native data type.
//!
//! This crate is the shell, which knows the server. `redis_lock_core` is the rest.
//! `docs/ARCHITECTURE.md` says how a command goes through both, and where a change goes.
//!
//! [`command::Command`] lists the commands, each with its file.

// A panic aborts the server. Tests may panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::arithmetic_side_effects
    )
)]

mod server;

pub use redis_lock_core::{command, lock, wait};

// The macro makes the entry points that the server looks for, and the global allocator. `on_load`
// registers everything else through the module API itself. The macro's own ways are slower, or do
// not load on every supported server.
#[allow(missing_docs)]
mod entry {
    use crate::server::{self, on_load};

    redis_module::redis_module! {
        name: "lock",
        version: server::VERSION,
        allocator: (server::ServerMemory, server::ServerMemory),
        data_types: [],
        init: on_load,
        commands: [],
    }
}
