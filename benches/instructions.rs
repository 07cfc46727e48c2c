//! How many instructions the server executes for a command, counted by callgrind. Unlike times,
//! they hardly vary on a busy machine, so a change that makes a command more expensive is visible
//! at once. `make bench-check` compares them with `instructions.tsv`, and those of other commands
//! with a server without the module.
//!
//! Everything that the server does is counted: reading, parsing, the command, memory, the reply,
//! and the share of the event loop.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::behind;
use crate::callgrind::Counted;
use crate::guarded::{self, PAIR, QUORUM};
use crate::harness::{wait_for, Client, Kind};
use crate::instruction_steps::{
    hand_offs, steps, Said, AT_ONCE, EXEC, GOAL_OF_EXEC, GOAL_OF_SEVERAL, GUARDED, HAND_OFFS, KEYS,
    PERMITS, READERS, SCRIPT, SEVERAL, SINGLY,
};
use crate::load::Requests;
use crate::other_commands;
use crate::stats::Spread;

/// The number of rounds. The least is used: what is not the command's own only adds to a round.
const ROUNDS: usize = 3;
const WARM_UP: usize = 1;
const RESIDENT: usize = 3000;
/// A count above the baseline by more than this is a failure.
const TOLERANCE: f64 = 0.05;
/// The same for a command behind many places: what it touches of large tables varies. On a busy
/// machine a turn of the timer falls into each round and adds a third.
const TOLERANCE_BEHIND: f64 = 0.5;
/// The highest cost of other clients' commands on a server with the module, as a ratio. A server
/// with any module executes some 40 instructions more per command at 16 in a pipeline: in each turn
/// of its loop it takes and releases a lock, and fires an event. The allocator adds up to 50. Each
/// further listener to keyspace events adds 50 per event, even if it ignores the event.
const GOAL_OF_OTHERS: f64 = 1.02;
/// Above this the check fails. A command costs up to 3 % more in one process than in another, by
/// chance.
const LIMIT_OF_OTHERS: f64 = 1.06;
/// The highest cost of the pair with a guard by a majority, beside the same without a guard. Two
/// servers differ by some 0.5 % by themselves.
const GOAL_OF_QUORUM: f64 = 1.01;
const LIMIT_OF_QUORUM: f64 = 1.02;
/// The highest cost of a command behind many places, beside the same behind ten.
const GROWTH: f64 = 2.0;
/// The highest cost of the pair beside SET NX PX + DEL on a server without the module.
const GOAL_OF_PAIR: f64 = 1.1;
/// The most instructions of a hand-off. More are reported.
const GOAL_OF_HAND_OFF: f64 = 28_000.0;

const KIND: Kind = Kind::Redis7_0;
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.tsv");

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/PERFORMANCE.md");
/// The figures that the document quotes.
const QUOTED: [&str; 13] = [
    "LOCK.ACQUIRE + LOCK.RELEASE",
    "SET NX PX + DEL",
    "SET NX PX + EVALSHA",
    HAND_OFFS[0],
    HAND_OFFS[1],
    "SET PX + DEL, no module",
    "SET PX + DEL, module loaded",
    "SET NX PX + DEL, no module",
    OUR_PAIR,
    SEVERAL,
    SINGLY,
    EXEC,
    GUARDED,
];
const OUR_PAIR: &str = "LOCK.ACQUIRE + LOCK.RELEASE (no module)";

/// A command, the command it is compared with, and its instructions.
struct Count {
    name: String,
    against: Option<String>,
    instructions: f64,
    tolerance: f64,
    bound: Option<Bound>,
}

/// The bounds of a ratio.
#[derive(Clone, Copy)]
enum Bound {
    /// A higher ratio is a failure.
    Limit(f64),
    /// A higher ratio is reported.
    Goal(f64),
    /// A ratio higher than the first is reported, and one higher than the second is a failure.
    Both(f64, f64),
}

impl Count {
    fn new(name: &str, against: Option<&str>, instructions: f64) -> Self {
        Self {
            name: name.into(),
            against: against.map(String::from),
            instructions,
            tolerance: TOLERANCE,
            bound: None,
        }
    }

    /// Reports a missed goal. Returns an error if a limit is exceeded.
    fn keeps_to(&self, bound: Bound, ratio: f64) -> Option<String> {
        let (name, against) = (&self.name, self.against.as_deref().unwrap_or_default());
        let said = |bound| format!("{name}: {ratio:.3} times {against}, more than {bound}");
        match bound {
            Bound::Limit(limit) | Bound::Both(_, limit) if ratio > limit => {
                return Some(said(limit))
            }
            Bound::Goal(goal) | Bound::Both(goal, _) if ratio > goal => {
                println!("{} (goal missed)", said(goal))
            }
            _ => (),
        }
        None
    }
}

/// Counts, prints a table, and compares it with the baseline. `BASELINE=write` writes the baseline
/// instead.
pub fn check() {
    let mut counts = count();
    counts.extend(pairs(&counts));
    counts.extend(behind::count(KIND).into_iter().map(|behind| Count {
        tolerance: TOLERANCE_BEHIND,
        bound: behind.against.is_some().then_some(Bound::Limit(GROWTH)),
        ..Count::new(
            &behind.name,
            behind.against.as_deref(),
            Spread::of(&behind.rounds).low,
        )
    }));
    counts.extend(guarded());
    counts.extend(beside(&other_commands::count(KIND, RESIDENT)));
    let environment = environment();
    let write = std::env::var("BASELINE").is_ok_and(|what| what == "write");
    let baseline = if write {
        Baseline::default()
    } else {
        Baseline::read()
    };
    let mut failures = compare(&counts, &baseline, &environment);
    if write {
        fs::write(BASELINE, rendered(&counts, &environment)).expect("to write the baseline");
        println!("written: {BASELINE}");
    }
    failures.extend(unquoted());
    if !failures.is_empty() {
        for failure in &failures {
            eprintln!("{failure}");
        }
        eprintln!("If it must be: BASELINE=write make bench-check, and say why in the commit.");
        std::process::exit(1);
    }
}

/// The cost of an acquire and a release together.
fn pairs(counts: &[Count]) -> Vec<Count> {
    let of = |name| {
        let count = counts.iter().find(|count| count.name == name);
        count.expect("a count").instructions
    };
    let plain = "SET NX PX + DEL";
    let script = "SET NX PX + EVALSHA";
    let pair = |name, against, one, other| Count::new(name, against, of(one) + of(other));
    let exclusive = "LOCK.ACQUIRE + LOCK.RELEASE";
    let permits = PERMITS.map(|(take, give, both, goal)| Count {
        bound: Some(Bound::Goal(goal)),
        ..pair(both, Some(exclusive), take, give)
    });
    let mut pairs = vec![
        pair(plain, None, "SET NX PX", "DEL"),
        pair(script, None, "SET NX PX", SCRIPT),
        pair(exclusive, Some(plain), "LOCK.ACQUIRE", "LOCK.RELEASE"),
        pair(
            "LOCK.ACQUIRE + LOCK.RELEASE (script)",
            Some(script),
            "LOCK.ACQUIRE",
            "LOCK.RELEASE",
        ),
    ];
    pairs.extend(permits);
    // As many single locks in one pipeline, of which each costs what it always does.
    let singly = |name| AT_ONCE as f64 * of(name);
    let gives = AT_ONCE as f64 * of("LOCK.RELEASE, taken with others");
    let both = "8 LOCK.ACQUIRE + 8 LOCK.RELEASE";
    let all = singly("LOCK.ACQUIRE") + singly("LOCK.RELEASE");
    pairs.push(Count::new(SINGLY, None, singly("LOCK.ACQUIRE")));
    pairs.push(Count::new(both, None, all));
    let ours = of(SEVERAL) + gives;
    let name = "LOCK.MACQUIRE of 8 keys + 8 LOCK.RELEASE";
    pairs.push(Count::new(name, Some(both), ours));
    pairs
}

/// The cost of other clients' commands, and of our pair, beside a server without the module.
fn beside(counted: &other_commands::Beside) -> Vec<Count> {
    let other_commands::Beside {
        without,
        with,
        ours,
    } = counted;
    let of = |counts: &other_commands::Counts, name| {
        let count = counts.iter().find(|(known, _)| *known == name);
        count.expect("a count").1
    };
    let pair = |counts, one| of(counts, one) + of(counts, "DEL");
    let mut counts = Vec::new();
    let mut add = |name: &str, without, with| {
        let alone = format!("{name}, no module");
        counts.push(Count::new(&alone, None, without));
        let name_beside = format!("{name}, module loaded");
        counts.push(Count {
            // This is the command's share of the event loop, and little else.
            bound: (name != "PING").then_some(Bound::Both(GOAL_OF_OTHERS, LIMIT_OF_OTHERS)),
            ..Count::new(&name_beside, Some(&alone), with)
        });
    };
    for ((name, without), (_, with)) in without.iter().zip(with) {
        add(name, *without, *with);
    }
    for (name, one) in [("SET PX + DEL", "SET PX"), ("SET NX PX + DEL", "SET NX PX")] {
        add(name, pair(without, one), pair(with, one));
    }
    let ours = of(ours, "LOCK.ACQUIRE") + of(ours, "LOCK.RELEASE");
    counts.push(Count {
        bound: Some(Bound::Goal(GOAL_OF_PAIR)),
        ..Count::new(OUR_PAIR, Some("SET NX PX + DEL, no module"), ours)
    });
    counts
}

/// What a majority costs a primary with two replicas.
fn guarded() -> Vec<Count> {
    let [without, with] = [&[][..], &QUORUM].map(|guard| guarded::count(KIND, guard));
    let mut counts = Vec::new();
    for ((name, without), (_, with)) in without.into_iter().zip(with) {
        let alone = format!("{name}, two replicas");
        counts.push(Count::new(&alone, None, Spread::of(&without).low));
        let of_pair = name == PAIR;
        counts.push(Count {
            bound: of_pair.then_some(Bound::Both(GOAL_OF_QUORUM, LIMIT_OF_QUORUM)),
            ..Count::new(
                &format!("{name}, quorum"),
                Some(&alone),
                Spread::of(&with).low,
            )
        });
    }
    counts
}

/// The figures of docs/PERFORMANCE.md that differ from the baseline.
fn unquoted() -> Vec<String> {
    let document = fs::read_to_string(DOCUMENT).expect("the document");
    let baseline = Baseline::read().counts;
    let of = |name: &str| baseline[name].0 as u64;
    let mut wanted: Vec<(&str, u64)> = QUOTED.iter().map(|name| (*name, of(name))).collect();
    let [list, lock] = [HAND_OFFS[0], HAND_OFFS[1]].map(of);
    wanted.push(("what a hand-off is dearer by", lock - list));
    wanted.retain(|(_, n)| !document.contains(&format!("{},{:03}", n / 1000, n % 1000)));
    let wanted = wanted.iter();
    wanted
        .map(|(name, n)| format!("docs/PERFORMANCE.md does not say {n} ({name})"))
        .collect()
}

fn compare(counts: &[Count], baseline: &Baseline, environment: &[String]) -> Vec<String> {
    // Another compiler or server executes other instructions. The plain commands beside ours show
    // how much of the difference that explains.
    let alike = baseline.environment == environment;
    let mut failures = Vec::new();
    println!("| command | instructions | baseline | against | ratio | baseline |");
    println!("| --- | ---: | ---: | --- | ---: | ---: |");
    for count in counts {
        let ratio = ratio(counts, count);
        let known = baseline.counts.get(&count.name);
        let shown = |value: Option<f64>, digits| {
            value.map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        println!(
            "| {} | {:.0} | {} | {} | {} | {} |",
            count.name,
            count.instructions,
            shown(known.map(|known| known.0), 0),
            count.against.as_deref().unwrap_or_default(),
            shown(ratio, 3),
            shown(known.and_then(|known| known.1), 3),
        );
        if let (Some(ratio), Some(bound)) = (ratio, count.bound) {
            failures.extend(count.keeps_to(bound, ratio));
        }
        if count.name == HAND_OFFS[1] && count.instructions > GOAL_OF_HAND_OFF {
            let (name, n) = (&count.name, count.instructions);
            println!("{name}: {n:.0}, more than {GOAL_OF_HAND_OFF} (goal missed)");
        }
        let (Some(ratio), Some((instructions, Some(known)))) = (ratio, known) else {
            continue;
        };
        let growth = if alike {
            count.instructions / instructions
        } else {
            ratio / known
        } - 1.0;
        if growth > count.tolerance {
            let percent = growth * 100.0;
            failures.push(format!("{}: {percent:.1} % dearer", count.name));
        } else if growth < -count.tolerance {
            let percent = -growth * 100.0;
            println!("{}: {percent:.1} % cheaper than the baseline", count.name);
        }
    }
    if !alike && !baseline.counts.is_empty() {
        println!("The ratios were compared: the baseline was counted with");
        baseline.environment.iter().for_each(|c| println!("  {c}"));
        println!("and this is");
        environment.iter().for_each(|c| println!("  {c}"));
    }
    failures
}

fn ratio(counts: &[Count], count: &Count) -> Option<f64> {
    let of = |name: &str| {
        counts
            .iter()
            .find(|c| c.name == name)
            .map(|c| c.instructions)
    };
    Some(count.instructions / of(count.against.as_deref()?)?)
}

/// The environment that the counts depend on, besides this project's source.
fn environment() -> Vec<String> {
    let first_line = |program: &Path| {
        let output = Command::new(program).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{program:?} cannot be run: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().unwrap_or_default().to_string()
    };
    let mut environment = vec![
        first_line(Path::new("rustc")),
        first_line(&KIND.binary()),
        first_line(Path::new("valgrind")),
    ];
    // Each write is sent to replicas then, also that of a SET.
    environment.extend(std::env::var("GUARD").ok().filter(|mode| mode == "quorum"));
    environment
}

#[derive(Default)]
struct Baseline {
    environment: Vec<String>,
    counts: BTreeMap<String, (f64, Option<f64>)>,
}

impl Baseline {
    fn read() -> Self {
        let text = fs::read_to_string(BASELINE).expect("a baseline: BASELINE=write makes one");
        let mut baseline = Self::default();
        for line in text.lines() {
            if let Some(condition) = line.strip_prefix("# with ") {
                baseline.environment.push(condition.to_string());
            } else if !line.starts_with('#') {
                let mut fields = line.split('\t');
                let name = fields.next().unwrap_or_default().to_string();
                let instructions = fields.next().and_then(|n| n.parse().ok());
                let ratio = fields.nth(1).and_then(|n| n.parse().ok());
                let instructions = instructions.unwrap_or_else(|| panic!("no count: {line}"));
                baseline.counts.insert(name, (instructions, ratio));
            }
        }
        baseline
    }
}

fn rendered(counts: &[Count], environment: &[String]) -> String {
    let mut text = String::from(
        "# Instructions of the server per command, by `BASELINE=write make bench-check`.\n",
    );
    for condition in environment {
        writeln!(text, "# with {condition}").unwrap();
    }
    text.push_str("# command\tinstructions\tagainst\tratio\n");
    for count in counts {
        let against = count.against.as_deref().unwrap_or("-");
        let ratio = ratio(counts, count).map_or("-".into(), |ratio| format!("{ratio:.4}"));
        let (name, n) = (&count.name, count.instructions);
        writeln!(text, "{name}\t{n:.0}\t{against}\t{ratio}").unwrap();
    }
    text
}

fn goal_of(step: &str) -> Option<f64> {
    match step {
        SEVERAL => Some(GOAL_OF_SEVERAL),
        EXEC => Some(GOAL_OF_EXEC),
        _ => None,
    }
}

/// A server with a guard that has ended, if `GUARD` names its mode. With `quorum` it has replicas.
fn start() -> Counted {
    let Ok(mode) = std::env::var("GUARD") else {
        return Counted::start(KIND);
    };
    if mode == "quorum" {
        return Counted::start_with_replicas(KIND, &QUORUM);
    }
    let counted = Counted::start_with(KIND, &["guard", &mode, "max-ttl", "1000"]);
    let mut c = Client::connect(counted.port());
    wait_for("the end of the guard", || {
        (c.info("lock_guard") == "open").then_some(())
    });
    c.text("CONFIG SET lock.max-ttl 3600000");
    counted
}

fn count() -> Vec<Count> {
    let mut counted = start();
    let scripts = counted.prepare(RESIDENT, READERS);
    let names = steps(&scripts, 0);
    let mut rounds = vec![Vec::new(); names.len()];
    for round in 0..WARM_UP + ROUNDS {
        for (step, rounds) in steps(&scripts, round).iter().zip(&mut rounds) {
            let tally = counted.run(&step.requests);
            let instructions = counted.instructions();
            let said = match step.said {
                Said::Yes => tally.yes,
                Said::No => tally.no,
            };
            assert_eq!(said, step.requests.len(), "{}: {tally:?}", step.name);
            if round >= WARM_UP {
                rounds.push(instructions / said as f64);
            }
        }
    }
    let steps = names.iter().zip(rounds).map(|(step, rounds)| Count {
        bound: goal_of(step.name).map(Bound::Goal),
        ..Count::new(step.name, step.against, Spread::of(&rounds).low)
    });
    // What a step needs before or after it has no name.
    let mut counts: Vec<Count> = steps.filter(|count| !count.name.is_empty()).collect();
    // There must be an element to take.
    counted.run(&Requests::of(["LPUSH list x".into()]));
    for (name, against, by) in hand_offs() {
        let rounds: Vec<f64> = (0..ROUNDS).map(|_| counted.hand_off(KEYS, &by)).collect();
        counts.push(Count::new(name, against, Spread::of(&rounds).low));
    }
    counts
}
