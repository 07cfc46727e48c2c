//! Faults: a server is stopped, paused, busy, out of disk, out of memory, out of connections, and
//! its clock jumps. In every case all waiters are answered, nobody is granted wrongly, and fences
//! rise.
//!
//! If a server refuses writes of its clients, a timer must not write either. Each refusal is
//! provoked while a timer has a lock to hand off:
//!
//! - READONLY: `traps/demotion.rs`
//! - MISCONF: `disk.rs` for both files
//! - NOREPLICAS: `disk.rs`
//! - CLUSTERDOWN: `a_partitioned_primary_that_allows_reads_grants_nobody` in `traps/cluster.rs`
//! - MOVED: `a_slot_that_leaves_with_its_lock_grants_nobody` there
//! - ASK: `waiters_of_a_lock_that_ends_in_a_migrating_slot_get_tryagain` there. The module checks one
//!   key at a time, for which no server returns TRYAGAIN.
//! - OOM does not prevent a hand-off: `without_memory_a_hold_ends_and_the_next_waiter_is_granted`
//!   in `memory.rs`

mod busy;
mod clock;
mod connections;
mod contexts;
mod disk;
mod memory;
mod stopped;
