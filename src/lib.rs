//! `redis-lock`: a Redis / Valkey module with locks as a native data type.
//!
//! This file is the map. `docs/ARCHITECTURE.md` says more, and where a change goes.
//!
//! # Layers
//!
//! - [`lock`]: one lock. What it is, how requests are decided, and how it changes. Std only; time
//!   is an argument.
//! - [`wait`]: many keys. Who waits for which key, in which order, which grants are on their way,
//!   and what is due when. Std only, for any kind of listener.
//! - [`command`]: the grammar and description of each command.
//! - [`engine`]: the machine. What a command, a lost client or a turn of the timer does to locks
//!   and waiters, for any server: it says by three traits what it needs of one.
//! - `server`: the shell, which has every call of the module API and every `unsafe` block.
//!
//! `lock` imports no other layer. `wait` imports `lock`, `command` imports both, `engine` imports
//! these three, and `server` imports all. Only this file imports `server`. `tests/tidy.rs` checks
//! that. `planted` has the faults on purpose that no release contains.
//!
//! # The path of a command
//!
//! Data flows one way: bytes, parsed request, decision, effect, changed value and replicated
//! effect, reply.
//!
//! | file | step |
//! | --- | --- |
//! | `server/entry/dispatch.rs` | the server calls the handler; a task begins |
//! | `server/host/module.rs`, `engine/notes.rs` | the notes of callbacks are carried out |
//! | `command/*.rs` | the arguments are parsed |
//! | `engine/command.rs`, `server/host/lock_key.rs` | the key is opened; waiters that are due are served |
//! | `lock/decide.rs` | the request is decided: an effect or a refusal |
//! | `engine/commit.rs`, `server/replication/propagation.rs` | the effect changes the value and is replicated |
//! | `engine/serve.rs`, `wait/registry.rs` | the next waiters are granted, or this client begins to wait |
//! | `server/api/reply.rs` | the reply |
//!
//! Without a command, `server/clients/timer.rs` calls `engine/tick.rs` when something is due.
//! `server/entry/callbacks.rs` lists what else the server calls. Callbacks only leave notes in
//! `engine/inbox.rs`.
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
pub mod engine;
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
