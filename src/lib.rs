//! `redis-lock`: a Redis / Valkey module with locks as a native data type.
//!
//! `docs/ARCHITECTURE.md` says what each layer knows, how a command goes through them, and where a
//! change goes.
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

pub mod command;
#[allow(unreachable_pub)] // Only the shell uses it.
mod engine;
pub mod lock;
mod planted;
mod server;
pub mod wait;

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
