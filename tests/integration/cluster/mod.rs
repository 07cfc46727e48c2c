//! Clusters: three primaries and three replicas, whose slots move and whose primaries change.

mod atomic;
mod failover;
mod slots;
