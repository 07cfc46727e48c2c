//! The shell: the only layer that knows the server. Every call of the module API and every `unsafe`
//! block is in here.
//!
//! # How a command runs
//!
//! [`entry::dispatch`] has the function of each command. [`host::module`] begins the task,
//! [`entry::locking`] parses the arguments, and the machine ([`crate::engine`]) does the rest: it
//! sees this server by the traits that [`host`] implements. What the server calls is listed in
//! [`entry::callbacks`]; a callback leaves a note in the machine's inbox. What happens without a
//! command is in the machine, too; [`clients::timer`] says when.
//!
//! # Order
//!
//! A file uses only files of its own folder and of folders in rows above it
//! (`docs/ARCHITECTURE.md`).
//!
//! # Rules
//!
//! - A lock changes in one place: `engine/commit.rs`.
//! - A call that may come back into this module needs the [`api::Caller`]. Borrowed state and open
//!   keys hold it, so that such a call does not compile ([`host::module`]).
//! - A function of the module API that some server from 6.2.0 on lacks is an `Option` at its call.
//!   The others are checked once, at load ([`api::missing_function`]).
//! - Nothing that a client has sent goes to the log, or into a reply without a length. What the
//!   machine and [`observe::forced`] name is escaped and cut.

mod api;
mod clients;
mod cluster;
mod entry;
mod host;
mod load;
mod observe;
mod replication;
mod settings;

pub(crate) use api::ServerMemory;
pub(crate) use load::{on_load, VERSION};
