//! Faults: a server is stopped, paused, busy, out of disk, out of memory, out of connections, and
//! its clock jumps. In every case all waiters are answered, nobody is granted wrongly, and fences
//! rise.
//!
//! If a server refuses writes of its clients, a timer must not write either. Each refusal is
//! provoked while a timer has a lock to hand off:
//!
//! - READONLY: `traps/demotion.rs`, and `a_primary_resumed_after_its_replica_left_grants_nobody` in
//!   `failover/writes.rs`
//! - MISCONF: `disk.rs` for both files, and `renamed.rs` where a command for the check is missing
//! - NOREPLICAS: `disk.rs`, `failover/writes.rs`, and `renamed.rs` likewise
//! - CLUSTERDOWN: `a_node_of_a_cluster_that_is_down_grants_nobody` and
//!   `a_partitioned_primary_that_allows_reads_grants_nobody` in `traps/cluster.rs`
//! - MOVED: `a_slot_that_leaves_with_its_lock_grants_nobody` and
//!   `a_lock_in_an_importing_slot_grants_nobody` there
//! - ASK: `waiters_of_a_lock_that_ends_in_a_migrating_slot_get_tryagain` there
//! - TRYAGAIN: `a_missing_key_of_a_migrating_slot_grants_nobody` there. The module checks one key
//!   at a time, for which no server returns it: the reply is ASK then.
//! - OOM does not prevent a hand-off: `without_memory_a_hold_ends_and_the_next_waiter_is_granted`
//!   in `memory.rs`
//! - an unknown command: `renamed.rs`, and `renamed_commands_unblock_no_waiter` in
//!   `traps/cluster.rs`

mod busy;
mod clock;
mod connections;
mod contexts;
mod disk;
mod memory;
mod renamed;
mod stopped;
