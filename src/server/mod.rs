//! The shell: the only layer that knows the server. Every call of the module API and every `unsafe`
//! block is in here.
//!
//! # Rules
//!
//! - A function of the module API that some server from 7.0 on lacks is an `Option` at its call.
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
