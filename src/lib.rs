//! `redis-lock`: a Redis / Valkey module that makes locks a native thing of the server.
//!
//! The map, from the inside out:
//!
//! - [`lock`], the core: what a lock is, how it is decided about and how it changes. Std only; time is an argument.
//! - [`wait`]: who waits for which key, in which order, and what is due when. Std only, for any kind of listener.
//! - [`command`]: the grammar of each command, from bytes to a request and its decision.
//! - `server`, the shell: every call of the module API and every `unsafe` block, from the server's call to its reply.
//!
//! `lock` imports nothing of ours, `wait` imports `lock`, `command` imports both, `server` imports all, and only this file imports
//! `server`.
//! A command flows one way: bytes, parsed request, decision, effect, value written and effect replicated, reply.

// A panic would end the server. Tests may.
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
pub mod lock;
mod server;
pub mod wait;

// The macro makes the entry points that the server looks for, and the global allocator. Commands, the type and what else the
// server offers are registered by `on_load`, through the module API itself: the macro's own ways are slower or do not load on
// every supported server.
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
