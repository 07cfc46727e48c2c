//! Clients that wait: blocked ones, channels, and the timer.

pub(in crate::server) mod blocked_client;
pub(in crate::server) mod channel;
pub(in crate::server) mod connections;
pub(in crate::server) mod timer;
