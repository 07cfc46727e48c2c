//! The integration tests: one binary that speaks RESP to real servers with the module loaded.
//!
//! Most tests run on every server, and some only on the oldest and the newest: each in a server of
//! its own. `cargo test --test integration valkey_9` runs the tests of one
//! server, `cargo test --test integration acquire::` those of one file. `make test` builds the module and fetches the servers first.

#![allow(unreachable_pub)] // A test binary has no public API.

/// Makes each named function a test per server.
macro_rules! on_every_server {
    ($($test:ident),* $(,)?) => {
        mod redis_7_0 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis7_0); })* }
        mod redis_8_2 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis8_2); })* }
        mod redis_8_6 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis8_6); })* }
        mod valkey_8_0 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey8_0); })* }
        mod valkey_9 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey9); })* }
    };
}

/// Makes each named function a test per server between those. `make test-nightly` runs them.
macro_rules! on_nightly_servers {
    ($($test:ident),* $(,)?) => {
        mod redis_7_2 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Redis7_2); })* }
        mod redis_7_4 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Redis7_4); })* }
        mod valkey_8_1 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Valkey8_1); })* }
    };
}

/// Makes each named function a test per server that `make soak` runs: elections take their time.
macro_rules! on_every_server_by_night {
    ($($test:ident),* $(,)?) => {
        mod redis_7_0 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Redis7_0); })* }
        mod redis_8_2 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Redis8_2); })* }
        mod redis_8_6 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Redis8_6); })* }
        mod valkey_8_0 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Valkey8_0); })* }
        mod valkey_9 { $(#[test] #[ignore = "nightly"] fn $test() { super::$test($crate::harness::Kind::Valkey9); })* }
    };
}

/// Makes each named function a test on the oldest and on the newest server: a rule of the engine,
/// which a simulation has proved.
macro_rules! on_oldest_and_newest {
    ($($test:ident),* $(,)?) => {
        mod redis_7_0 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis7_0); })* }
        mod valkey_9 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey9); })* }
    };
}

/// Makes each named function a test on each server that can move slots atomically.
macro_rules! on_servers_with_atomic_moves {
    ($($test:ident),* $(,)?) => {
        on_redis_8_6![$($test),*];
        on_valkey_9![$($test),*];
    };
}

/// Makes each named function a test on the Redis that can.
macro_rules! on_redis_8_6 {
    ($($test:ident),* $(,)?) => {
        mod redis_8_6 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Redis8_6); })* }
    };
}

/// Makes each named function a test on the only server that stops in the middle of such a move, and
/// that has coordinated failovers.
macro_rules! on_valkey_9 {
    ($($test:ident),* $(,)?) => {
        mod valkey_9 { $(#[test] fn $test() { super::$test($crate::harness::Kind::Valkey9); })* }
    };
}

#[path = "../harness/mod.rs"]
mod harness;

// What tests/scenarios says.
mod scenarios;

// The commands.
mod acquire;
mod deadlock;
mod guard;
mod guards;
mod linger;
mod native;
mod permits;
mod places;
mod several;
mod transactions;
mod waiting;

// Other ends of a wait, and pitfalls of the module API.
mod handoff_replication;
mod leaving;
mod reentrant;
mod traps;

// Coexistence with the locks of other libraries.
mod migrating;

// Persistence and replication.
mod persistence;
mod replicas;
mod replication;
mod sweep;

// Several primaries.
mod cluster;
mod quorum;

// Failover.
mod failover;

// Refused input, and the server's description of the module.
mod bad_input;
mod fuzz;
mod hostile;
mod metadata;
mod security;

// Configuration.
mod configuration;

// Observability.
mod events;
mod forced;
mod monitoring;
mod recent;
mod stats;
mod tracking;

// Memory.
mod memory;

// Faults.
mod faults;

// The servers between those of the suite.
mod nightly;

// Upgrade, downgrade and removal of the module.
mod module_upgrade;

// The documents.
mod commands_doc;
