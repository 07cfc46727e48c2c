//! What an operator sees: statistics, events of keys, holds that ended without their owners.

pub(in crate::server) mod forced;
pub(in crate::server) mod notify;
pub(in crate::server) mod running_client;
pub(in crate::server) mod stats;
