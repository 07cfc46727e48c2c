//! The integration tests: one binary that speaks RESP to real servers with the module loaded.
//!
//! Every test runs on five servers, some on two more, each in a server of its own: `cargo test
//! --test integration redis_7_0` runs one server's, `cargo test --test integration acquire::` one
//! file's. `make test` builds the module and fetches the servers first.

#![allow(unreachable_pub)] // A test binary has no public face.

/// Makes each of the named functions a test per server.
macro_rules! on_every_server {
    ($($test:ident),* $(,)?) => {
        mod redis_6_2 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis6_2); })* }
        mod redis_7_0 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis7_0); })* }
        mod redis_8_2 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis8_2); })* }
        mod valkey_8_0 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey8_0); })* }
        mod valkey_9 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey9); })* }
    };
}

/// Makes each of the named functions a test per server between those, where a short set of the
/// tests is enough.
macro_rules! on_more_servers {
    ($($test:ident),* $(,)?) => {
        mod redis_8_0 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis8_0); })* }
        mod valkey_8_1 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey8_1); })* }
    };
}

/// Makes each of the named functions a test on the one server that can move slots atomically.
macro_rules! on_valkey_9 {
    ($($test:ident),* $(,)?) => {
        mod valkey_9 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey9); })* }
    };
}

mod harness;

// What the commands do.
mod acquire;
mod lock_upgrades;
mod native;
mod transactions;
mod waiting;

// How a wait ends otherwise, and what the ground of the module API has in store.
mod handoff_replication;
mod leaving;
mod traps;

// What other libraries' locks and these do to each other.
mod migrating;

// What outlives a server, and what reaches others.
mod persistence;
mod replicas;
mod replication;
mod restart;
mod sweep;

// What becomes of locks when there is more than one primary.
mod cluster;
mod quorum;

// Who decides when a primary is gone.
mod failover;

// What is refused, and what the server says of the module.
mod bad_input;
mod fuzz;
mod hostile;
mod metadata;
mod security;

// What an operator sets.
mod configuration;

// What an operator sees.
mod events;
mod monitoring;
mod stats;
mod tracking;

// What it costs the server's memory, and what becomes of that.
mod memory;

// What a crowd does to it, and whether every rule was kept.
mod soak;

// What a bad day does to it.
mod faults;

// What becomes of locks when the module is upgraded, downgraded or missing.
mod module_upgrade;

// What the documents say.
mod commands_doc;
mod readme;
mod terminal;
