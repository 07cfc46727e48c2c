//! Lock libraries as they are, beside this project's adapters, under the same contention: `make
//! bench-peers`.
//!
//! The driver of each language, `clients/LANGUAGE/bench`, lets clients of one library take one lock
//! in turns, with several holds. `BENCH_QUICK=1` only checks that everything works,
//! `BENCH_SERVERS=7.0.15` chooses a server, `BENCH_HOLDS=0,100` chooses the holds in milliseconds,
//! `BENCH_CLIENTS` names another folder than clients/.

#![allow(missing_docs, unreachable_pub)] // A benchmark has no public API.

#[allow(dead_code, unused_imports)]
#[path = "../../tests/harness/mod.rs"]
mod harness;

mod catalogue;
mod document;
mod driver;
mod holds;
mod timeline;

#[path = "../environment.rs"]
mod environment;
#[allow(dead_code)]
#[path = "../fixture.rs"]
mod fixture;
#[allow(dead_code)]
#[path = "../load.rs"]
mod load;
#[allow(dead_code)]
#[path = "../stats.rs"]
mod stats;

use std::thread;
use std::time::{Duration, Instant};

use catalogue::{Language, Library, LANGUAGES};
use driver::{Driver, Load};
use fixture::Fixture;
use harness::Kind;
use stats::jain;
use timeline::Timeline;

const OF_A_CONNECTION: [&str; 6] = ["info", "hello", "auth", "select", "ping", "client"];
const SERVERS: [Kind; 3] = [Kind::Redis8_2, Kind::Redis7_0, Kind::Valkey8_0];

/// The size of the measurement.
pub struct Run {
    pub kind: Kind,
    pub quick: bool,
    pub rounds: usize,
    /// The length of a round with a short hold.
    pub shortest: Duration,
    pub holds_ms: Vec<u64>,
}

impl Run {
    fn of_environment() -> Self {
        let wanted = std::env::var("BENCH_SERVERS").unwrap_or_default();
        let mut kinds = SERVERS.into_iter();
        let kind = kinds.find(|kind| fixture::name(*kind).contains(&wanted));
        let quick =
            std::env::var("BENCH_QUICK").is_ok_and(|value| !value.is_empty() && value != "0");
        let (rounds, ms) = if quick { (1, 300) } else { (3, 2_500) };
        let holds = std::env::var("BENCH_HOLDS").unwrap_or_default();
        Self {
            kind: kind.unwrap_or_else(|| panic!("no server is called {wanted}")),
            quick,
            rounds,
            shortest: Duration::from_millis(ms),
            holds_ms: holds::chosen(&holds, quick)
                .unwrap_or_else(|error| panic!("BENCH_HOLDS: {error}")),
        }
    }
}

/// One library with one hold and one number of clients: its figures, once per round, and its errors.
pub struct Measured {
    pub language: &'static Language,
    pub library: &'static Library,
    pub hold_ms: u64,
    pub clients: usize,
    pub rounds: Vec<Figures>,
    pub failures: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub hand_offs: f64,
    pub acquisitions: f64,
    pub jain: f64,
    pub starved: f64,
    /// The median, the 99th percentile and the longest, in microseconds.
    pub waits: [f64; 3],
    /// Per acquisition.
    pub commands: f64,
    pub cpu_us: f64,
}

fn main() {
    let run = Run::of_environment();
    if !fixture::take_the_other_core() {
        println!("The server and its clients share the cores as they come: figures will be worse.");
    }
    let (present, left_out): (Vec<_>, Vec<_>) = LANGUAGES.iter().partition(|language| {
        let names = driver::list(&language.path()).unwrap_or_default();
        let mut libraries = language.libraries.iter();
        libraries.all(|library| names.iter().any(|name| name == library.driver))
    });
    for language in &left_out {
        println!("{}: not set up, left out", language.name);
    }
    if present.is_empty() {
        eprintln!("bench-peers: no language is set up: run 'make setup-examples' first");
        std::process::exit(1);
    }
    let begin = Instant::now();
    let mut all = Vec::new();
    for &hold_ms in &run.holds_ms {
        for &clients in holds::clients(hold_ms) {
            all.extend(measure(&run, &present, hold_ms, clients));
        }
    }
    println!("-- {:.0} s", begin.elapsed().as_secs_f64());
    document::write(&run, &all, &left_out);
    let failures: usize = all.iter().map(|measured| measured.failures.len()).sum();
    if failures > 0 {
        eprintln!("bench-peers: {failures} runs failed, see above");
        std::process::exit(1);
    }
}

/// Measures all libraries in turns, so that a disturbance affects all of them.
fn measure(
    run: &Run,
    languages: &[&'static Language],
    hold_ms: u64,
    clients: usize,
) -> Vec<Measured> {
    let of = |language: &'static Language| {
        language.libraries.iter().map(move |library| Measured {
            language,
            library,
            hold_ms,
            clients,
            rounds: Vec::new(),
            failures: Vec::new(),
        })
    };
    let mut all: Vec<Measured> = languages.iter().copied().flat_map(of).collect();
    let mut fixture = Fixture::start(run.kind, &[]);
    let time = holds::round_time(hold_ms, clients, run.shortest);
    for _ in 0..holds::rounds(hold_ms, run.rounds) {
        for measured in &mut all {
            fixture.clear();
            let title = measured.language.title(measured.library);
            match round(&mut fixture, measured, time) {
                Ok(figures) => {
                    println!("{title}, {hold_ms} ms, {clients} clients: {figures:.1?}");
                    measured.rounds.push(figures);
                }
                Err(failure) => {
                    eprintln!("{title}, {hold_ms} ms, {clients} clients FAILED: {failure}");
                    measured.failures.push(failure);
                }
            }
        }
    }
    all
}

fn round(fixture: &mut Fixture, of: &Measured, time: Duration) -> Result<Figures, String> {
    let load = Load {
        port: fixture.server.port,
        clients: of.clients,
        hold_ms: of.hold_ms,
        time,
    };
    let driver = Driver::start(&of.language.path(), of.library.driver, &load)?;
    let begin = Instant::now();
    let (cpu, commands) = (fixture.cpu_us(), commands(fixture));
    thread::sleep(time.saturating_sub(begin.elapsed()));
    let cpu = fixture.cpu_us() - cpu;
    let commands = self::commands(fixture) - commands;
    let timeline = Timeline::of(&driver.finish()?, of.clients, time.as_micros() as u64)?;
    let acquisitions = timeline.acquisitions;
    if acquisitions == 0.0 {
        return Err("nobody ever got the lock".into());
    }
    let seconds = time.as_secs_f64();
    Ok(Figures {
        hand_offs: timeline.hand_offs / seconds,
        acquisitions: acquisitions / seconds,
        jain: jain(&timeline.taken),
        starved: timeline.starved(),
        waits: [0.5, 0.99, 1.0].map(|share| timeline.waits.at(share)),
        commands: commands / acquisitions,
        cpu_us: cpu / acquisitions,
    })
}

/// The commands so far, including those of scripts, without the harness' own and those that a
/// client sends when it connects. A client that waits in the server is counted when its wait ends.
fn commands(fixture: &mut Fixture) -> f64 {
    let text = fixture.control.text("INFO commandstats");
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let counted = lines.filter_map(|line| {
        let (name, rest) = line.split_once(":calls=")?;
        let is_of_a_connection = name.starts_with("client|") || OF_A_CONNECTION.contains(&name);
        (!is_of_a_connection).then(|| rest.split(',').next())?
    });
    counted.map(|calls| calls.parse::<f64>().unwrap()).sum()
}
