//! Real servers for the tests: started on a free loopback port in a temporary directory, ended by
//! pid.

pub mod aof;
mod busy;
mod client;
mod clock;
mod cluster;
pub mod commands;
mod console;
mod cut_link;
pub mod disk;
pub mod dump;
mod figures;
mod files;
mod info;
mod kind;
mod later;
mod links;
mod locks;
mod memcheck;
pub mod mixed_load;
mod raw;
mod replication;
mod sentinel;
mod server;
mod slot_migration;
mod state;
mod steady;
pub mod workload;

pub use client::{packed, Client, Reply};
pub use clock::{start_by, Clock};
pub use cluster::{Cluster, SHARDS};
pub use console::run_examples;
pub(crate) use cut_link::CutLink;
pub use figures::{figure, scale, setting};
pub use files::{built_module, copy_files, other_build, project_file, redis_cli};
#[allow(unused_imports)] // Only the campaign uses it.
pub use info::mode_named;
pub use info::{Info, Listener, Place};
pub use kind::{Kind, MODULE_COMMAND};
pub use later::Later;
#[allow(unused_imports)] // Only the campaign uses it.
pub use later::SetWhenDropped;
pub(crate) use links::follow_links;
pub use raw::Raw;
pub use sentinel::{SentinelGroup, Sentinels};
pub use server::{
    for_ms, free_port, module, wait_for, Server, Setup, AT_ONCE, COMMANDS_ONLY, PATIENCE, SYNCED,
};
pub use state::{now_ms, now_us, State};
