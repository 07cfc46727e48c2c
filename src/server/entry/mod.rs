//! The entries from the server: commands, callbacks, methods of the data type, INFO.

pub(in crate::server) mod callbacks;
pub(in crate::server) mod data_type;
pub(in crate::server) mod dispatch;
pub(in crate::server) mod exec;
pub(in crate::server) mod forced_log;
pub(in crate::server) mod info_reply;
pub(in crate::server) mod info_section;
pub(in crate::server) mod locking;
pub(in crate::server) mod queries;
pub(in crate::server) mod register;
pub(in crate::server) mod replay;
pub(in crate::server) mod top;
