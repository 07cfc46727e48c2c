//! The cost of a lock beside the alternatives: `make bench`, and `make bench-check` for the
//! instructions of each command.
//!
//! Each part is a file. `BENCH=owner` runs one of them, `BENCH_QUICK=1` only checks that everything
//! works, and `BENCH_SERVERS=7.0.15,8.2.3` chooses servers. `BENCH=head` measures nothing: it
//! writes the head of `results.md` and its goals from `results.tsv`, and `BENCH=profile` writes
//! `benches/PROFILE.md`.

#![allow(missing_docs, unreachable_pub)] // A benchmark has no public API.

#[allow(dead_code, unused_imports)]
#[path = "../tests/harness/mod.rs"]
mod harness;

// The parts that measure.
mod behind;
mod contention;
mod deadline;
mod expiry;
mod growth;
mod guarded;
mod handoff;
mod instructions;
mod memory;
mod moves;
mod other_commands;
mod owner;
mod place_bytes;
mod place_waits;
mod places;
mod profile;
mod scale;
mod scale_waiters;
mod several;
mod shards;
mod upgrade;

// The tools that they share.
mod callgrind;
mod environment;
mod fixture;
mod instruction_steps;
mod load;
mod load_clients;
mod moving;
mod peers;
mod report;
mod shards_counted;
mod stats;
mod turns;

use std::time::Instant;

use clap::builder::FalseyValueParser;
use clap::Parser;
use harness::Kind;

type Part = fn(&Run);

pub const PARTS: [(&str, Part); 17] = [
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
    ("scale", scale::measure),
    ("scale-waiters", scale_waiters::measure),
    ("shards", shards::measure),
    ("moves", moves::measure),
    ("upgrade", upgrade::measure),
];

#[derive(Parser)]
struct Arguments {
    /// All unless told; `instructions` checks, `profile` writes benches/PROFILE.md, and `head` only
    /// writes the head of results.md
    #[arg(value_parser = PARTS.map(|(name, _)| name).into_iter().chain(["instructions", "head", "profile"]).collect::<Vec<_>>())]
    parts: Vec<String>,
    /// Only check that everything works
    #[arg(long, env = "BENCH_QUICK", value_parser = FalseyValueParser::new())]
    quick: bool,
    /// Parts of the names of servers
    #[arg(long, env = "BENCH_SERVERS", value_delimiter = ',')]
    servers: Vec<String>,
    /// Cargo adds it on its own.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The size of a run, and its servers.
pub struct Run {
    pub kinds: Vec<Kind>,
    pub quick: bool,
}

impl Run {
    fn of(arguments: &Arguments) -> Self {
        let quick = arguments.quick;
        let wanted = arguments.servers.iter().filter(|name| !name.is_empty());
        let wanted: Vec<_> = wanted.collect();
        let mut kinds = vec![Kind::Redis7_0, Kind::Redis8_2, Kind::Valkey8_0];
        match wanted.is_empty() {
            true if quick => kinds.retain(|kind| *kind == Kind::Redis7_0),
            true => {}
            false => kinds.retain(|kind| {
                let name = fixture::name(*kind);
                wanted.iter().any(|wanted| name.contains(wanted.as_str()))
            }),
        }
        assert!(!kinds.is_empty(), "no server is called {wanted:?}");
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
    let arguments = Arguments::parse();
    let asked = |name| arguments.parts.iter().any(|part| part == name);
    if asked("instructions") {
        return instructions::check();
    }
    let run = Run::of(&arguments);
    if asked("head") {
        return report::write_head(run.quick);
    }
    if asked("profile") {
        return profile::write(&run);
    }
    if !fixture::take_the_other_core() {
        println!("The server and its clients share the cores as they come: figures will be worse.");
    }
    if let Err(error) = report::begin(&arguments.parts, run.quick) {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
    let begin = Instant::now();
    for (name, measure) in PARTS {
        if arguments.parts.is_empty() || asked(name) {
            measure(&run);
            println!("-- {name}: {:.0} s so far", begin.elapsed().as_secs_f64());
        }
    }
}
