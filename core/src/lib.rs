//! The core of `redis-lock`: locks, waiting, and the machine that a server drives. It knows no
//! server and no clock.
//!
//! - [`lock`]: one lock, and the bytes in which it is kept.
//! - [`rules`]: who waits, who is next, and what is a cycle of waits. They ask a book.
//! - `book`: all containers of waiting. It answers the questions of the rules.
//! - [`wait`]: requests come, are granted and leave, and what is to be done some time soon.
//! - [`command`]: the grammar of each command, and how the server describes it.
//! - [`engine`]: what a command, a lost client, a turn of the timer or a change from outside does.
//!   The shell implements its traits ([`engine::host`]) by the module API, and the simulation in
//!   memory.

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
#![forbid(unsafe_code)]

mod book;
pub mod command;
#[allow(missing_docs)] // Only the shell uses it.
pub mod engine;
pub mod lock;
pub mod planted;
pub mod rules;
pub mod wait;
