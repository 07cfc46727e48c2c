//! What users do to grow beyond one machine, and what happens to them there: three primaries, three replicas, and a crowd of clients
//! that goes on taking and giving up locks by a cluster-aware library while slots move and primaries change.

mod atomic;
mod checker;
mod failover;
mod journal;
mod load_clients;
mod slots;
