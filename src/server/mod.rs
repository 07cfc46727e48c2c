//! The shell: the only layer that knows the server. Every call of the module API and every `unsafe`
//! block is in here.
//!
//! # How a command runs
//!
//! `dispatch` has the function of each command. `module` begins the task, `entry` parses the
//! arguments, and the machine ([`crate::engine`]) does the rest: it sees this server by the traits
//! that `host` and `lock_key` implement. What the server calls is listed in `callbacks`; a callback
//! leaves a note in the machine's inbox. What happens without a command is in the machine, too;
//! `timer` says when.
//!
//! # Order
//!
//! A file uses only files of its own row and of the rows above it (`docs/ARCHITECTURE.md`).
//!
//! # Rules
//!
//! - A lock changes in one place: `engine/commit.rs`.
//! - A call that may come back into this module needs the [`api::Caller`]. Borrowed state and open
//!   keys hold it, so that such a call does not compile (`module`).
//! - A function of the module API that some server from 6.2.0 on lacks is an `Option` at its call.
//!   The others are checked once, at load ([`api::missing_function`]).
//! - Nothing that a client has sent goes to the log, or into a reply without a length. What the
//!   machine and `forced` name is escaped and cut.

mod api;
mod blocked_client;
mod callbacks;
mod channel;
mod clock;
mod cluster_slots;
mod config;
mod connections;
mod data_type;
mod delivery;
mod dispatch;
mod ends;
mod entry;
mod eviction;
mod exec;
mod forced;
mod forced_log;
mod host;
mod info_reply;
mod info_section;
mod limits;
mod load;
mod lock_key;
mod lock_type;
mod main_thread;
mod module;
mod notify;
mod propagation;
mod queries;
mod register;
mod replay;
mod replicas;
mod running_client;
mod scan;
mod server_line;
mod slot_migration;
mod start;
mod stats;
mod timer;
mod top;
mod writes;

pub(crate) use api::ServerMemory;
pub(crate) use load::{on_load, VERSION};
