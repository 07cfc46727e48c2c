//! Where the instructions of a lock go, by callgrind: the module's own code, the module API that it
//! calls, and the rest of the server. `make bench BENCH=profile` writes `benches/PROFILE.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::callgrind::{Counted, HandOff};
use crate::environment;
use crate::fixture::name;
use crate::harness::Kind;
use crate::load::{key, token, Requests};
use crate::Run;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/PROFILE.md");
const KINDS: [Kind; 3] = [Kind::Redis7_0, Kind::Redis8_2, Kind::Valkey9];
const KEYS: usize = 48;
const RESIDENT: usize = 3000;
/// The object whose functions are the module's.
const MODULE: &str = "libredis_lock.so";
/// The methods of the type. The API calls them in the middle of its own functions.
const INNER: [&str; 3] = ["on_unlink", "on_unlink2", "free"];
/// Functions with a smaller part of a case's instructions explain nothing, and are not listed.
const LEAST_PART: f64 = 0.02;

type Measure = fn(&mut Counted, usize) -> String;

/// A case, how often it is done, and how.
const CASES: [(&str, usize, Measure); 5] = [
    ("An acquire and a release", 8 * KEYS, pairs),
    ("A refused acquire", 8 * KEYS, refused),
    ("A hand-off to a blocked client", 200, hand_offs),
    ("A grant to a channel (NOTIFY)", 200, notify),
    ("A wait that times out", 40, timeouts),
];

pub fn write(run: &Run) {
    let (build, changed) = environment::build();
    let with_changes = if changed { " with changes" } else { "" };
    let mut text = format!("{HEAD}\nBuild {build}{with_changes}.\n");
    for (title, count, measure) in CASES {
        let count = run.size(count).next_multiple_of(2);
        let profiles = KINDS.map(|kind| {
            let mut counted = Counted::start(kind);
            counted.prepare(RESIDENT, 0);
            measure(&mut counted, run.size(40).next_multiple_of(2));
            // What the server does by the clock may fall into one of them.
            let [one, other] = [0, 1].map(|_| Profile::read(&measure(&mut counted, count), count));
            match one.total < other.total {
                true => one,
                false => other,
            }
        });
        section(&mut text, title, &profiles);
        println!("-- {title}");
    }
    match run.quick {
        true => println!("{text}"),
        false => fs::write(DOCUMENT, text).expect("to write the document"),
    }
}

const HEAD: &str = "\
# Profile

For contributors: where the instructions of a lock go. `make bench BENCH=profile` counts them by
callgrind and writes this page anew.

Each number is instructions per case. *Module* is the module's own code, with the functions of libc
that it calls and what the compiler has inlined. *API* is what the server does in the functions of
the module API. *Server* is everything else: reading, parsing, the event loop, sending. Below these
are the files and functions with at least 2 % of a case on the first server. Keys have 16 bytes,
tokens 36. Acquires, releases and refused acquires come 16 in a pipeline. In the other cases each
request has a turn of the event loop of its own. By the chance of a hash seed, the look-up of a
command costs more in some counts, up to 4 % of a case. PERFORMANCE.md's counts leave that out.
";

fn section(text: &mut String, title: &str, profiles: &[Profile; 3]) {
    let names = KINDS.map(name).join(" | ");
    writeln!(text, "\n## {title}\n").unwrap();
    writeln!(text, "| | {names} |\n| --- | ---: | ---: | ---: |").unwrap();
    let mut row = |what: &str, of: &dyn Fn(&Profile) -> f64| {
        let all = profiles.each_ref().map(|profile| shown(of(profile)));
        writeln!(text, "| {what} | {} |", all.join(" | ")).unwrap();
    };
    row("**module**", &|profile| profile.module);
    row("**API**", &|profile| profile.api());
    row("**server**", &|profile| profile.total - profile.inside);
    row("**total**", &|profile| profile.total);
    for what in listed(profiles, |profile| &profile.functions) {
        row(&format!("module: `{what}`"), &|profile| {
            profile.functions.get(&what).copied().unwrap_or_default()
        });
    }
    for what in listed(profiles, |profile| &profile.calls) {
        row(&format!("API: `{what}`"), &|profile| {
            profile.calls.get(&what).copied().unwrap_or_default()
        });
    }
}

/// The names with enough instructions on the first server, the largest first.
fn listed(profiles: &[Profile; 3], of: impl Fn(&Profile) -> &BTreeMap<String, f64>) -> Vec<String> {
    let least = LEAST_PART * profiles[0].total;
    let mut all: Vec<_> = of(&profiles[0])
        .iter()
        .filter(|(_, n)| **n >= least)
        .collect();
    all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    all.into_iter().map(|(name, _)| name.clone()).collect()
}

fn shown(instructions: f64) -> String {
    let n = instructions.round() as i64;
    match n {
        1000.. => format!("{},{:03}", n / 1000, n % 1000),
        _ => n.to_string(),
    }
}

/// The instructions of one case.
#[derive(Default)]
struct Profile {
    total: f64,
    /// Of the module, and all that it calls.
    inside: f64,
    module: f64,
    /// The module's functions, without what they call, by their files.
    functions: BTreeMap<String, f64>,
    /// The functions of the API, with what they call.
    calls: BTreeMap<String, f64>,
}

impl Profile {
    fn api(&self) -> f64 {
        self.inside - self.module
    }

    /// Reads a dump of callgrind: <https://valgrind.org/docs/manual/cl-format.html>. The first
    /// mention of an object or a function has its name, and the others only its number.
    fn read(dump: &str, count: usize) -> Self {
        let mut names = BTreeMap::new();
        let mut profile = Self::default();
        let (mut object, mut function) = (String::new(), String::new());
        let (mut callee_object, mut callee) = (None, String::new());
        let mut lines = dump.lines();
        while let Some(line) = lines.next() {
            let mut named = |kind: &str| {
                let text = line.strip_prefix(kind)?;
                let (id, name) = text.split_once(')')?;
                let table = if kind.ends_with("ob=") { "ob" } else { "fn" };
                let known = names
                    .entry((table, id.to_string()))
                    .or_insert(String::new());
                if !name.is_empty() {
                    *known = name.trim().rsplit('/').next().unwrap_or(name).to_string();
                    if table == "fn" {
                        *known = name.trim().to_string();
                    }
                }
                Some(known.clone())
            };
            if let Some(name) = named("ob=") {
                object = name;
            } else if let Some(name) = named("fn=") {
                function = name;
            } else if let Some(name) = named("cob=") {
                callee_object = Some(name);
            } else if let Some(name) = named("cfn=") {
                callee = name;
            } else if line.starts_with("calls=") {
                let cost = lines.next().map_or(0.0, cost_of);
                let to = callee_object.take().unwrap_or_else(|| object.clone());
                profile.call((&object, &function), (&to, &callee), cost);
            } else if line.starts_with(|first: char| "0123456789+-*".contains(first)) {
                let cost = cost_of(line);
                profile.total += cost;
                if object == MODULE {
                    profile.module += cost;
                    *profile.functions.entry(file_of(&function)).or_default() += cost;
                }
            }
        }
        profile.scale(1.0 / count as f64);
        profile
    }

    fn call(&mut self, (from, caller): (&str, &str), (to, callee): (&str, &str), cost: f64) {
        let is_inner = INNER
            .iter()
            .any(|name| callee.ends_with(&format!("::{name}")));
        if callee == "serverCron" && caller != "serverCron" {
            self.total -= cost; // Work that the server does periodically.
        } else if from != MODULE && to == MODULE && !is_inner {
            self.inside += cost;
        } else if from == MODULE && to != MODULE {
            // Valkey has another prefix for the same functions.
            match callee.strip_prefix("RM_").or(callee.strip_prefix("VM_")) {
                Some(name) => *self.calls.entry(name.into()).or_default() += cost,
                None => self.module += cost,
            }
        }
    }

    fn scale(&mut self, by: f64) {
        let Self {
            total,
            inside,
            module,
            functions,
            calls,
        } = self;
        let all = functions.values_mut().chain(calls.values_mut());
        all.chain([total, inside, module]).for_each(|n| *n *= by);
    }
}

fn cost_of(line: &str) -> f64 {
    let cost = line.rsplit(' ').next().and_then(|cost| cost.parse().ok());
    cost.unwrap_or_default()
}

/// The folder and the file of a function: `wait::queue`, or `others` outside the module's source.
fn file_of(function: &str) -> String {
    let start = function.find("redis_lock::");
    let path = start.map(|at| &function[at + "redis_lock::".len()..]);
    let words = path.map(|path| path.split("::").take(2).collect::<Vec<_>>().join("::"));
    words.unwrap_or_else(|| "others".into())
}

fn pairs(counted: &mut Counted, count: usize) -> String {
    let line = |n: usize| (key(n), token(n));
    counted.dump();
    for first in (0..count).step_by(KEYS) {
        let here = first..count.min(first + KEYS);
        counted.run(&Requests::of(
            here.clone()
                .map(line)
                .map(|(key, token)| format!("LOCK.ACQUIRE {key} {token} 60000")),
        ));
        counted.run(&Requests::of(
            here.map(line)
                .map(|(key, token)| format!("LOCK.RELEASE {key} {token}")),
        ));
    }
    counted.dump()
}

fn refused(counted: &mut Counted, count: usize) -> String {
    let take =
        |n: usize, by: usize| format!("LOCK.ACQUIRE {} {} 3600000", key(n % KEYS), token(by));
    counted.run(&Requests::of((0..KEYS).map(|n| take(n, n))));
    counted.dump();
    let tally = counted.run(&Requests::of((0..count).map(|n| take(n, KEYS + n))));
    assert_eq!(tally.no, count);
    counted.dump()
}

fn hand_offs(counted: &mut Counted, count: usize) -> String {
    counted.dump_of_hand_offs(
        count,
        &HandOff {
            take: |n| format!("LOCK.ACQUIRE lock {} 60000 BLOCK 0", token(n)),
            give: |n| format!("LOCK.RELEASE lock {}", token(n)),
        },
    )
}

fn notify(counted: &mut Counted, count: usize) -> String {
    counted.dump_of_grants(
        count,
        "channel",
        &HandOff {
            take: |n| format!("LOCK.ACQUIRE lock {} 60000 NOTIFY 0 channel", token(n)),
            give: |n| format!("LOCK.RELEASE lock {}", token(n)),
        },
    )
}

fn timeouts(counted: &mut Counted, count: usize) -> String {
    let take = |n, timeout| format!("LOCK.ACQUIRE lock {} 3600000 BLOCK {timeout}", token(n));
    counted.run(&Requests::of([take(0, 0)]));
    counted.dump();
    for _ in 0..count {
        counted.run(&Requests::of([take(1, 3)]));
        counted.wait_until_idle();
    }
    let dump = counted.dump();
    counted.run(&Requests::of([format!("LOCK.RELEASE lock {}", token(0))]));
    dump
}
