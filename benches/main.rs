//! The cost of a lock beside the alternatives: `make bench`, and `make bench-check` for the
//! instructions of each command.
//!
//! Each part is a file. `BENCH=owner` runs one of them, `BENCH_QUICK=1` only checks that everything
//! works, and `BENCH_SERVERS=7.0.15,8.2.3` chooses servers. `BENCH=head` measures nothing: it
//! writes the head of `results.md` and its goals from `results.tsv`.

#![allow(missing_docs, unreachable_pub)] // A benchmark has no public API.

#[allow(dead_code, unused_imports)]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;

// The parts that measure.
mod contention;
mod deadline;
mod expiry;
mod growth;
mod handoff;
mod instructions;
mod memory;
mod other_commands;
mod owner;
mod place_bytes;
mod place_waits;
mod places;
mod several;

// The tools that they share.
mod callgrind;
mod environment;
mod fixture;
mod instruction_steps;
mod load;
mod load_clients;
mod peers;
mod report;
mod stats;

use std::time::Instant;

use harness::Kind;

type Part = fn(&Run);

pub const PARTS: [(&str, Part); 12] = [
    ("owner", owner::measure),
    ("others", other_commands::measure),
    ("contention", contention::measure),
    ("handoff", handoff::measure),
    ("deadline", deadline::measure),
    ("memory", memory::measure),
    ("expiry", expiry::measure),
    ("growth", growth::measure),
    ("place-bytes", place_bytes::measure),
    ("places", places::measure),
    ("place-waits", place_waits::measure),
    ("several", several::measure),
];

/// The size of a run, and its servers.
pub struct Run {
    pub kinds: Vec<Kind>,
    pub quick: bool,
}

impl Run {
    fn of_environment() -> Self {
        let wanted = std::env::var("BENCH_SERVERS").unwrap_or_default();
        let quick =
            std::env::var("BENCH_QUICK").is_ok_and(|value| !value.is_empty() && value != "0");
        let all = [
            Kind::Redis6_2,
            Kind::Redis7_0,
            Kind::Redis8_2,
            Kind::Valkey8_0,
        ];
        let mut kinds = all.to_vec();
        match wanted.as_str() {
            "" if quick => kinds.retain(|kind| *kind == Kind::Redis7_0),
            "" => kinds.retain(|kind| *kind != Kind::Redis6_2),
            some => kinds.retain(|kind| {
                some.split(',')
                    .any(|some| fixture::name(*kind).contains(some))
            }),
        }
        assert!(!kinds.is_empty(), "no server is called {wanted}");
        Self { kinds, quick }
    }

    /// Returns `full`, or much less in a quick run.
    pub fn size(&self, full: usize) -> usize {
        if self.quick {
            (full / 20).max(1)
        } else {
            full
        }
    }

    pub fn rounds(&self, full: usize) -> usize {
        if self.quick {
            1
        } else {
            full
        }
    }
}

fn main() {
    // Cargo adds `--bench` on its own.
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    words.retain(|word| !word.starts_with("--"));
    if words == ["instructions"] {
        return instructions::check();
    }
    let run = Run::of_environment();
    if words == ["head"] {
        return report::write_head(run.quick);
    }
    if !fixture::take_the_other_core() {
        println!("The server and its clients share the cores as they come: figures will be worse.");
    }
    let begin = Instant::now();
    let mut known = 0;
    for (name, measure) in PARTS {
        if words.is_empty() || words.iter().any(|word| word == name) {
            measure(&run);
            println!("-- {name}: {:.0} s so far", begin.elapsed().as_secs_f64());
            known += 1;
        }
    }
    let names = PARTS.map(|(name, _)| name).join(", ");
    assert!(
        known >= words.len(),
        "of {words:?} not all are parts; there are {names}"
    );
}
