//! Real servers for the tests: started on a free loopback port in a temporary directory, ended by pid.

mod client;
mod later;
mod server;

pub use client::{Client, Reply};
pub use later::{later, Later};
pub use server::{module, redis_cli, wait_for, Kind, Server};
