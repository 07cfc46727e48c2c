//! Real servers for the tests: started on a free loopback port in a temporary directory, ended by pid.

mod client;
mod clock;
pub mod crowd;
pub mod dump;
mod figures;
mod later;
mod locks;
mod raw;
mod sentinel;
mod server;
mod state;
pub mod workload;

pub use client::{Client, Reply};
pub use clock::Clock;
pub use figures::{figure, scale};
pub use later::Later;
pub use raw::Raw;
pub use sentinel::Sentinels;
#[allow(unused_imports)] // Merging.
pub use server::{module, redis_cli, wait_for, Kind, Server, Setup};
pub use state::{now_ms, State};
