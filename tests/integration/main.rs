//! The integration tests: one binary that speaks RESP to real servers with the module loaded.
//!
//! Most tests run on every server, and some only on the oldest and the newest: each in a server of
//! its own. `cargo test --test integration valkey_9` runs the tests of one
//! server, `cargo test --test integration acquire::` those of one file. `make test` builds the module and fetches the servers first.

#![allow(unreachable_pub)] // A test binary has no public API.

/// Makes a test of each named function on each of these servers: `the_name::redis_7_0` and so on.
macro_rules! on_servers {
    ($servers:tt $($test:ident),* $(,)?) => { $(on_these_servers!($test $servers);)* };
}

macro_rules! on_these_servers {
    ($test:ident [$($server:ident $kind:ident $($ignore:literal)?),*]) => {
        mod $test {
            $(
                #[test]
                $(#[ignore = $ignore])?
                fn $server() {
                    super::$test($crate::harness::Kind::$kind);
                }
            )*
        }
    };
}

macro_rules! on_every_server {
    ($($test:ident),* $(,)?) => {
        on_servers![
            [redis_7_0 Redis7_0, redis_8_2 Redis8_2, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9]
            $($test),*
        ];
    };
}

/// What `make nightly` runs: elections, sentinels, and whatever measures time.
macro_rules! on_every_server_at_night {
    ($($test:ident),* $(,)?) => {
        on_servers![
            [
                redis_7_0 Redis7_0 "nightly", redis_8_2 Redis8_2 "nightly", redis_8_6 Redis8_6 "nightly",
                valkey_8_0 Valkey8_0 "nightly", valkey_9 Valkey9 "nightly"
            ]
            $($test),*
        ];
    };
}

/// The servers between those of the suite, also at night.
macro_rules! on_nightly_servers {
    ($($test:ident),* $(,)?) => {
        on_servers![
            [redis_7_2 Redis7_2 "nightly", redis_7_4 Redis7_4 "nightly", valkey_8_1 Valkey8_1 "nightly"]
            $($test),*
        ];
    };
}

/// A rule of the engine, which a simulation has proved.
macro_rules! on_oldest_and_newest {
    ($($test:ident),* $(,)?) => {
        on_servers![[redis_7_0 Redis7_0, valkey_9 Valkey9] $($test),*];
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
mod once;
mod places;
mod several;
mod transactions;

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
