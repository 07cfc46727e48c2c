//! Faults in the module that the judges must find. `make campaign CAMPAIGN_PLANTED=1` builds the
//! module with the feature `fault-injection` (`src/planted.rs`), plays each of them until a judge
//! finds it, and writes `planted.tsv`: who found it, in which round and after how long.

use std::collections::BTreeSet;
use std::fmt::Write as _;
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

/// The name in `src`, and in which modes and under which faults it is played.
const FAULTS: [(&str, &str, &str); 28] = [
    ("leases-are-cut", "restart", "calm"),
    ("fences-begin-again", "failover", "behind"),
    ("writers-beside-readers", "restart", "calm"),
    ("anybody-releases", "restart", "calm"),
    ("newcomers-pass", "restart", "calm"),
    ("the-newest-first", "restart", "calm"),
    ("timeouts-are-forgotten", "restart", "calm"),
    ("the-timer-sleeps", "restart", "calm"),
    ("unheard-grants-stay", "restart", "calm"),
    ("exec-without-a-check", "restart", "calm"),
    ("exec-runs-twice", "restart", "calm"),
    ("renewals-stay-here", "failover", "planned"),
    ("hand-overs-stay-here", "failover", "planned"),
    ("no-guard-after-a-start", "restart", "restart"),
    ("no-guard-after-a-promotion", "failover", "behind"),
    ("half-the-guard", "restart,failover", "restart,behind,empty"),
    ("no-slack", "failover", "liveson,stopped"),
    ("waiters-while-guarded", "failover", "behind,liveson"),
    ("holders-while-guarded", "failover", "behind"),
    ("holds-are-made-longer", "failover", "liveson"),
    ("the-last-second-counts", "failover", "liveson"),
    ("one-member-decides", "quorum", "cutoff"),
    ("stale-members-count", "quorum", "cutoff"),
    ("stale-members-renew", "quorum", "cutoff"),
    ("a-majority-at-once", "quorum", "behind,cutoff"),
    ("half-the-wait-of-a-majority", "quorum", "behind,cutoff"),
    ("renewals-at-once", "quorum", "cutoff,liveson"),
    ("attachments-go-on", "quorum", "twice,cutoff"),
];

/// How many rounds of one fault are played at most.
const MOST_ROUNDS: u64 = 120;

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
    for (fault, modes, under) in FAULTS.iter().filter(|(fault, ..)| is_wanted(fault)) {
        let hunt = hunt(fault, modes, under, &into);
        write!(table, "{fault}\t{modes}\t{under}\t{hunt}").unwrap();
        eprint!("{fault}\t{modes}\t{under}\t{hunt}");
        fs::write(into.join("planted.tsv"), &table).unwrap();
    }
}

/// Plays rounds with a planted fault until a judge finds something. The line for the table.
fn hunt(fault: &str, modes: &str, under: &str, into: &Path) -> String {
    // The servers inherit it. No other thread runs.
    std::env::set_var("REDIS_LOCK_FAULT", fault);
    let choice = Choice::of("", "group", modes, under);
    let seed: u64 = setting("CAMPAIGN_SEED").unwrap_or_else(now_us);
    let most = setting("CAMPAIGN_ROUNDS").unwrap_or(MOST_ROUNDS);
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
                    let line = format!(
                        "{judges}\t{rounds}\t{}\t{}",
                        start.elapsed().as_secs(),
                        row.plan.seed
                    );
                    found.lock().unwrap().get_or_insert(line);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let seconds = start.elapsed().as_secs();
    found.map_or_else(
        || format!("nobody\t{}\t{seconds}\t-\n", played.into_inner()),
        |line| line + "\n",
    )
}

/// Those who have found something in a round.
fn judges(row: &Row) -> String {
    let of_beliefs = row.verdict.iter();
    let of_beliefs = of_beliefs.flat_map(|verdict| verdict.overlaps.iter().chain(&verdict.fences));
    let all = of_beliefs.chain(&row.findings);
    let names: BTreeSet<&str> = all.map(|finding| finding.judge).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Each fault in `src` is played, and each one that is played is there.
#[test]
fn all_planted_faults_are_played() {
    let mut planted = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
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
    let played: BTreeSet<_> = FAULTS.iter().map(|(name, ..)| name.to_string()).collect();
    assert_eq!(planted, played);
}

#[test]
fn no_release_has_planted_faults() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, features) = manifest.split_once("[features]").unwrap();
    let (features, _) = features.split_once("\n[").unwrap();
    assert!(features.contains("fault-injection = []") && !features.contains("default"));
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
