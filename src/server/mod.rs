//! The shell: the only layer that knows the server. Every call of the module API and every `unsafe` block is in here.
//!
//! # How a command runs
//!
//! [`commands`] parses the arguments, opens the key, asks the core for a decision, has [`lock_key`] carry the effect out, and
//! replies. All of it happens in the server's main thread inside one command, so no other command sees the lock in between.
//! Clients that wait are [`waiting`]'s, where the rules for them stand.
//!
//! # Rules
//!
//! - An effect is applied, replicated and signalled in one place: [`lock_key::Key::commit`].
//! - What the server's memory holds beside the keys ([`fences`]) is borrowed only around calls of the core, never around a call
//!   of the module API, because many of those call the module back.
//! - A function of the module API that is not in every server from 6.2.0 on is an `Option` at its call; the others are checked once,
//!   at load ([`api::missing_function`]).
//! - Nothing that a client sent goes to the log or into a reply that is not length-prefixed.

mod api;
mod calls;
mod clock;
mod commands;
mod config;
mod data_type;
mod events;
mod eviction;
mod fences;
mod info_reply;
mod info_section;
mod load;
mod lock_key;
mod memory;
mod notify;
mod open_key;
mod propagation;
mod register;
mod server_line;
mod slot_migration;
mod stats;
mod sweep;
mod waiting;
mod writes;

pub(crate) use load::{on_load, VERSION};
pub(crate) use memory::ServerMemory;
