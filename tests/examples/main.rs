//! The worker examples of all languages, run through the same faults: `make test-examples`.
//!
//! Every test runs with each program, in a server of its own: `cargo test --test examples python_` runs
//! those of one language. `make setup-examples` sets the programs up. The environment variable
//! `EXAMPLES_DIR` names the folder of the languages, instead of `examples/`.

#![allow(unreachable_pub)] // A test binary has no public API.

#[allow(dead_code, unused_imports)]
#[path = "../harness/mod.rs"]
mod harness;

/// Makes each of the named functions a test per program.
macro_rules! with_every_worker {
    ($($test:ident),* $(,)?) => {
        with_every_worker! { @ [$($test),*]
            python_sync: "python", "sync";
            python_asyncio: "python", "asyncio";
            node_ioredis: "node", "ioredis";
            node_redis: "node", "node-redis";
            go_redis: "go", "go-redis";
            java_jedis: "java", "jedis";
            rust_redis: "rust", "redis";
        }
    };
    (@ $tests:tt $($name:ident: $language:literal, $variant:literal;)*) => {
        $(with_every_worker! { @@ $tests $name $language $variant })*
    };
    (@@ [$($test:ident),*] $name:ident $language:literal $variant:literal) => {
        mod $name { $(#[test] fn $test() {
            let program = $crate::fixture::Program::find($language, $variant);
            super::$test($crate::fixture::Fixture::with(program));
        })* }
    };
}

// The faults.
mod cuts;
mod late;
mod work;

// The overselling demonstration, which needs no setup.
mod oversell;

// The tools.
mod events;
mod fixture;
mod worker;
