//! The bad days of a server: it is stopped, paused, busy, out of disk, out of memory, out of connections, and its clock jumps. Whatever
//! happens, nobody who waits is forgotten, nobody is granted who must not be, and fences rise.
//!
//! What a server refuses its clients, it must not do by a timer either. Each refusal is provoked under a timer that has a lock to hand on:
//!
//! - READONLY: `traps/demotion.rs`, and `a_primary_that_was_asleep_hands_nothing_on` in `failover/writes.rs`
//! - MISCONF: `disk.rs` for both files, and `renamed.rs` where a command that could tell is missing
//! - NOREPLICAS: `disk.rs`, `failover/writes.rs`, and `renamed.rs` likewise
//! - CLUSTERDOWN: `a_cluster_that_is_down_grants_nobody`, `a_primary_that_is_cut_off_and_still_reads_hands_nothing_on` and
//!   `a_slot_that_nobody_serves_sends_its_waiters_away` in `traps/cluster.rs`
//! - MOVED: `a_slot_that_leaves_with_the_lock_hands_nothing_on` and `a_lock_that_has_come_before_its_slot_hands_nothing_on` there
//! - ASK: `a_lock_that_ends_while_its_slot_migrates_sends_its_waiters_away` there
//! - TRYAGAIN: `where_clients_must_try_again_a_missing_key_is_not_handed_on` there. The module asks for one key at a time, for which no
//!   server says it: the answer is ASK then.
//! - OOM is no reason not to hand on: `a_hold_ends_and_is_handed_on_without_memory` in `memory.rs`
//! - an unknown command: `renamed.rs`, and `a_renamed_command_sends_nobody_away` in `traps/cluster.rs`

mod busy;
mod clock;
mod connections;
mod crowd;
mod disk;
mod flush;
mod memory;
mod renamed;
mod stopped;
mod surroundings;
