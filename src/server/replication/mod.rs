//! What replicas and files get, who follows, and whether writes are refused now.

pub(in crate::server) mod propagation;
pub(in crate::server) mod replicas;
pub(in crate::server) mod writes;
