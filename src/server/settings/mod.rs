//! The settings: numbers and switches, what the server says of its own.

pub(in crate::server) mod config;
pub(in crate::server) mod eviction;
pub(in crate::server) mod limits;
pub(in crate::server) mod server_line;
mod setting;
