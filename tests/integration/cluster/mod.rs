//! Clusters: three primaries, three replicas, and load clients that acquire and release locks
//! through a cluster-aware library while slots move and primaries change.

mod atomic;
mod checker;
mod failover;
mod journal;
mod load_clients;
mod slots;
