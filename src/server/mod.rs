//! The shell: the only layer that knows the server. Every call of the module API and every `unsafe`
//! block is in here.
//!
//! # How a command runs
//!
//! `dispatch` has the function of each command, and `command_call` runs it. `execute` opens the
//! key, asks the core for a decision, and replies. `commit` carries the decision out. `serve`
//! queues waiters, grants and dismisses them. What happens without a command is in `tick`, which
//! `timer` calls. What the server calls is listed in `callbacks`; a callback leaves a note in the
//! `inbox`. What the module remembers is in `module`.
//!
//! # Order
//!
//! A file uses only files of its own row and of the rows above it (`docs/ARCHITECTURE.md`):
//!
//! 1. `api`, `clock`, `lock_type`, `main_thread`, `fences`, `limits`, `printable`: the server under safe names.
//! 2. `config`, `eviction`, `info_reply`, `notify`, `register`, `server_line`, `writes`,
//!    `blocked_client`, `delivery`, `timer`, `inbox`, `propagation`, `stats`, `slot_migration`,
//!    `sweep`, `channel`, `bindings`, `running_client`, `forced`: the parts of the module's memory, settings, statistics.
//! 3. `module`: these parts as one structure, and the task that borrows it.
//! 4. `lock_key`, `commit`, `linger`, `serve`, `several`, `deadlock`, `ends`: work on keys.
//! 5. `command_call`, `execute`, `queries`, `exec`, `macquire`, `top`, `forced_log`, `replay`, `dispatch`, `tick`, `callbacks`, `data_type`,
//!    `info_section`: the entries.
//! 6. `load`: registers everything.
//!
//! # Rules
//!
//! - A lock changes in one place: `commit`.
//! - A call that may come back into this module needs the [`api::Caller`]. Borrowed state and open
//!   keys hold it, so that such a call does not compile (`module`).
//! - A function of the module API that some server from 6.2.0 on lacks is an `Option` at its call.
//!   The others are checked once, at load ([`api::missing_function`]).
//! - Nothing that a client has sent goes to the log, or into a reply without a length. What `deadlock` and `forced` name is escaped and cut.

mod api;
mod bindings;
mod blocked_client;
mod callbacks;
mod channel;
mod clock;
mod command_call;
mod commit;
mod config;
mod data_type;
mod deadlock;
mod delivery;
mod dispatch;
mod ends;
mod eviction;
mod exec;
mod execute;
mod fences;
mod forced;
mod forced_log;
mod inbox;
mod info_reply;
mod info_section;
mod limits;
mod linger;
mod load;
mod lock_key;
mod lock_type;
mod macquire;
mod main_thread;
mod module;
mod notify;
mod printable;
mod propagation;
mod queries;
mod register;
mod replay;
mod running_client;
mod serve;
mod server_line;
mod several;
mod slot_migration;
mod stats;
mod sweep;
mod tick;
mod timer;
mod top;
mod writes;

pub(crate) use api::ServerMemory;
pub(crate) use load::{on_load, VERSION};
