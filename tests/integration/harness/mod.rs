//! Real servers for the tests: started on a free loopback port in a temporary directory, ended by pid.

mod client;
pub mod dump;
mod figures;
mod later;
mod locks;
mod memcheck;
mod raw;
mod server;
mod state;
pub mod workload;

pub use client::{Client, Reply};
pub use figures::{figure, scale};
pub use later::Later;
pub use raw::Raw;
#[allow(unused_imports)] // Merging.
pub use server::{module, redis_cli, wait_for, Kind, Server, Setup};
pub use state::{now_ms, State};
