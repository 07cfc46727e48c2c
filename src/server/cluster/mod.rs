//! Hash slots that come and go.

pub(in crate::server) mod slot_migration;
pub(in crate::server) mod slots;
