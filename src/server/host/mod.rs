//! The parts of the module in one structure, the task that borrows it, and this server as the
//! machine sees it.

pub(in crate::server) mod ends;
pub(in crate::server) mod lock_key;
pub(in crate::server) mod module;
pub(in crate::server) mod server;
