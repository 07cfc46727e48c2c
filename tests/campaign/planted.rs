//! Faults in the module that the judges must find. `make campaign CAMPAIGN_PLANTED=1` builds the
//! module with the feature `fault-injection` (`core/src/planted.rs`), plays each of them until a
//! judge finds it, and writes `planted.tsv`: who found it, in which round and after how long.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::plan::Choice;
use super::report::Row;
use super::run;
use crate::harness::{module, now_us, setting};

/// A fault by its name in `src`, and where it is played: on one server or in a group, in these modes and
/// under these faults.
struct Planted {
    name: &'static str,
    topology: &'static str,
    modes: &'static str,
    under: &'static str,
    /// Why no judge of real servers can find it. The simulation of the guard finds each of these.
    missed: Option<&'static str>,
}

const fn planted(
    name: &'static str,
    topology: &'static str,
    modes: &'static str,
    under: &'static str,
) -> Planted {
    Planted {
        name,
        topology,
        modes,
        under,
        missed: None,
    }
}

const fn missed(
    name: &'static str,
    modes: &'static str,
    under: &'static str,
    why: &'static str,
) -> Planted {
    Planted {
        missed: Some(why),
        ..planted(name, "group", modes, under)
    }
}

const FAULTS: [Planted; 28] = [
    planted("leases-are-cut", "single", "restart", "busy"),
    planted("fences-begin-again", "group", "failover", "behind"),
    planted("writers-beside-readers", "single", "restart", "busy"),
    planted("anybody-releases", "single", "restart", "busy"),
    planted("newcomers-pass", "single", "restart", "busy"),
    planted("the-newest-first", "single", "restart", "busy"),
    planted("timeouts-are-forgotten", "single", "restart", "busy"),
    planted("the-timer-sleeps", "single", "restart", "busy"),
    planted("unheard-grants-stay", "single", "restart", "busy"),
    planted("exec-without-a-check", "single", "restart", "busy"),
    planted("exec-runs-twice", "single", "restart", "busy"),
    planted("renewals-stay-here", "single", "restart", "killed"),
    planted("hand-overs-stay-here", "single", "restart", "killed"),
    planted("no-guard-after-a-start", "group", "restart", "restart"),
    planted("no-guard-after-a-promotion", "group", "failover", "behind"),
    planted(
        "half-the-guard",
        "group",
        "restart,failover",
        "restart,behind,empty",
    ),
    planted("no-slack", "group", "failover", "liveson,stopped"),
    planted("waiters-while-guarded", "group", "failover", "behind,liveson"),
    missed(
        "holders-while-guarded",
        "failover",
        "behind",
        "only a lost conversion makes it matter: an owner that asks for less at the old primary, \
         and for more at the new one before its wait is over",
    ),
    missed(
        "holds-are-made-longer",
        "failover",
        "liveson",
        "the old primary hands a lock on at a deadline that falls between the promotion and its end, \
         and the owner renews at the new one in the same half second",
    ),
    missed(
        "the-last-second-counts",
        "failover",
        "liveson",
        "clocks of servers on one machine agree, and the last second is for those that do not",
    ),
    planted("one-member-decides", "group", "quorum", "cutoff"),
    missed(
        "stale-members-count",
        "quorum",
        "cutoff",
        "a member would have to acknowledge what is older than F and go on following meanwhile",
    ),
    missed(
        "stale-members-renew",
        "quorum",
        "cutoff",
        "the same, for a renewal",
    ),
    planted("a-majority-at-once", "group", "quorum", "behind,cutoff"),
    planted("half-the-wait-of-a-majority", "group", "quorum", "behind,cutoff"),
    missed(
        "renewals-at-once",
        "quorum",
        "cutoff,liveson",
        "an owner would have to renew at the new primary a hold that the old one ended and handed \
         on within F, and leases here are longer",
    ),
    missed(
        "attachments-go-on",
        "quorum",
        "twice,cutoff",
        "a member would have to leave for another primary and be back before its wait is over",
    ),
];

/// How many rounds of one fault are played at most.
const MOST_ROUNDS: u64 = 120;

/// The same of one that nobody is expected to find.
const FEW_ROUNDS: u64 = 12;

#[test]
#[ignore = "make campaign CAMPAIGN_PLANTED=1"]
fn planted_faults_are_found() {
    let into: PathBuf = setting("CAMPAIGN_INTO").expect("a folder");
    fs::create_dir_all(&into).unwrap();
    let wanted: String = setting("CAMPAIGN_PLANTED").unwrap_or_default();
    let is_wanted = |fault: &str| {
        let mut names = wanted.split(',');
        wanted == "1" || names.any(|name| fault.starts_with(name))
    };
    let mut table = String::from("fault\tmodes\tunder\tfound by\trounds\tseconds\tseed\n");
    let mut not_found = Vec::new();
    for fault in FAULTS.iter().filter(|fault| is_wanted(fault.name)) {
        let hunt = hunt(fault, &into);
        let line = format!("{}\t{}\t{}\t{hunt}\n", fault.name, fault.modes, fault.under);
        eprint!("{line}");
        table += &line;
        fs::write(into.join("planted.tsv"), &table).unwrap();
        match (hunt.starts_with("nobody"), fault.missed) {
            (true, None) => not_found.push(fault.name),
            (true, Some(why)) => eprintln!("  {why}"),
            (false, _) => {}
        }
    }
    assert!(not_found.is_empty(), "no judge has found {not_found:?}");
}

/// Plays rounds with a planted fault until a judge finds something. The line for the table.
fn hunt(fault: &Planted, into: &Path) -> String {
    // The servers inherit it. No other thread runs.
    std::env::set_var("REDIS_LOCK_FAULT", fault.name);
    let choice = Choice::of("", fault.topology, fault.modes, fault.under);
    let seed: u64 = setting("CAMPAIGN_SEED").unwrap_or_else(now_us);
    let most = match fault.missed {
        Some(_) => FEW_ROUNDS,
        None => setting("CAMPAIGN_ROUNDS").unwrap_or(MOST_ROUNDS),
    };
    let (next, played, found) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..setting("CAMPAIGN_GROUPS").unwrap_or(6) {
            scope.spawn(|| loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= most || found.lock().unwrap().is_some() {
                    return;
                }
                let row = run(choice.plan(number, seed + number, true), into);
                let rounds = played.fetch_add(1, Ordering::Relaxed) + 1;
                let judges = judges(&row);
                if !judges.is_empty() {
                    let (seconds, seed) = (start.elapsed().as_secs(), row.plan.seed);
                    let line = format!("{judges}\t{rounds}\t{seconds}\t{seed}");
                    found.lock().unwrap().get_or_insert(line);
                }
            });
        }
    });
    let (rounds, seconds) = (played.into_inner(), start.elapsed().as_secs());
    let found = found.into_inner().unwrap();
    found.unwrap_or_else(|| format!("nobody\t{rounds}\t{seconds}\t-"))
}

/// Those who have found something in a round.
fn judges(row: &Row) -> String {
    let of_beliefs = row.verdict.iter();
    let of_beliefs = of_beliefs.flat_map(|verdict| verdict.overlaps.iter().chain(&verdict.fences));
    let all = of_beliefs.chain(&row.findings);
    let names: BTreeSet<&str> = all.map(|finding| finding.judge).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Each fault in the module is played, and each one that is played is there.
#[test]
fn all_planted_faults_are_played() {
    let mut planted = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("core/src"), root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let calls = text.split("planted(\"").skip(1);
            // Those of the guard's rules stand in one table.
            let rules = text.split("const FAULTS:").nth(1).unwrap_or_default();
            let rules = rules.split("];").next().unwrap_or_default();
            let rules = rules.split(", \"").skip(1);
            let names = calls.chain(rules).filter_map(|rest| rest.split('"').next());
            planted.extend(names.map(str::to_string));
        }
    }
    let played: BTreeSet<_> = FAULTS.iter().map(|one| one.name.to_string()).collect();
    assert_eq!(planted, played);
}

#[test]
fn no_release_has_planted_faults() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, features) = manifest.split_once("[features]").unwrap();
    let (features, _) = features.split_once("\n[").unwrap();
    assert!(features.contains("fault-injection = ") && !features.contains("default"));
    // Whatever builds what is passed on.
    let mut paths: Vec<PathBuf> = ["scripts", "packaging", ".ci", ".github", "Dockerfile"]
        .map(|name| root.join(name))
        .to_vec();
    let mut seen = 0;
    while let Some(path) = paths.pop() {
        if let Ok(entries) = fs::read_dir(&path) {
            paths.extend(entries.map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = fs::read_to_string(&path) {
            let has = |word: &str| text.contains(word);
            let is_planted = has("fault-injection") || has("--all-features");
            assert!(!is_planted, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} files were seen");
    let module = fs::read(module()).unwrap();
    let name = b"REDIS_LOCK_FAULT";
    let is_there = module.windows(name.len()).any(|bytes| bytes == name);
    assert!(!is_there, "the module reads which fault is planted");
}
