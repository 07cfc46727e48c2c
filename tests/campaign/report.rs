//! A line per round while the campaign goes on, and the sums at its end. A folder that already has
//! lines gets more of them, and the sums are of all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::Instant;

use super::judge::Verdict;
use super::plan::{Fault, Mode, Plan, Topology, LONG_TTL_MS};
use super::requests::Finding;

/// How much later than promised the first new grant may come.
const LATE_MS: u64 = 500;

pub struct Row {
    pub plan: Plan,
    /// `None` if the round could not be played.
    pub verdict: Option<Verdict>,
    /// Of the other judges.
    pub findings: Vec<Finding>,
}

pub struct Report {
    into: PathBuf,
    lines: Mutex<(File, u64)>,
    /// What the judges of waits, holds and resources have found.
    refused: AtomicUsize,
    run: Run,
}

/// What is known of a campaign besides its rounds.
struct Run {
    seed: u64,
    /// That of its beginning.
    commit: String,
    groups: u64,
    start: Instant,
}

impl Row {
    /// A breach of what the guard promises, or of the conditions.
    pub fn is_suspicious(&self) -> bool {
        let Some(verdict) = &self.verdict else {
            return true;
        };
        let line = self.line();
        let breaks = || !verdict.overlaps.is_empty() || Record::read(line.trim_end()).is_late();
        !verdict.fences.is_empty()
            || !self.findings.is_empty()
            || (self.plan.is_guarded && breaks())
            || !self.lost().is_empty()
    }

    /// Overlaps that also servers without the guard do not have.
    fn lost(&self) -> &[Finding] {
        let plan = &self.plan;
        let has_reason =
            plan.fault.loses() || plan.is_old_served() || plan.fault == Fault::ClockStep;
        match &self.verdict {
            None => &[],
            Some(verdict) if has_reason => &verdict.known,
            Some(verdict) => &verdict.overlaps,
        }
    }

    /// How the round is played again.
    fn command(&self) -> String {
        let Plan {
            seed,
            kind,
            topology,
            mode,
            fault,
            is_guarded,
            ..
        } = &self.plan;
        let (rounds, control) = if *is_guarded { (1, 0) } else { (0, 1) };
        let (server, topology) = (kind.name(), topology.name());
        let (mode, fault) = (mode.name(), fault.name());
        format!(
            "make campaign CAMPAIGN_SEED={seed} CAMPAIGN_ROUNDS={rounds} CAMPAIGN_CONTROL={control} \
             CAMPAIGN_SERVERS={server} CAMPAIGN_TOPOLOGIES={topology} CAMPAIGN_MODES={mode} CAMPAIGN_FAULTS={fault}"
        )
    }

    /// What was found, and how the round is played again.
    pub fn told(&self) -> String {
        let verdict = self.verdict.iter();
        let found = verdict.flat_map(|verdict| verdict.overlaps.iter().chain(&verdict.fences));
        let found = found.chain(&self.findings).take(20);
        let found: String = found.map(|one| format!("  {one}\n")).collect();
        format!(
            "suspicious: {}{found}  again: {}\n",
            self.line(),
            self.command()
        )
    }

    fn line(&self) -> String {
        let Plan {
            seed,
            kind,
            topology,
            mode,
            fault,
            max_ttl_ms,
            adapter,
            ..
        } = &self.plan;
        let state = match &self.verdict {
            None => "broken",
            Some(verdict) if verdict.is_void => "void",
            Some(_) => "played",
        };
        let verdict = self.verdict.clone().unwrap_or_default();
        let of_majority_us = match self.plan.mode {
            Mode::Quorum if self.plan.is_guarded => verdict.pause_of_majority_us,
            _ => None,
        };
        let ms = |us: Option<u64>| us.map_or("-".into(), |us| (us / 1_000).to_string());
        let guard = match (self.plan.topology, self.plan.is_guarded) {
            (Topology::Single, _) => "-",
            (_, true) => "on",
            (_, false) => "off",
        };
        let (renewing, kept) = match self.plan.can_keep() {
            true => (verdict.renewing, verdict.kept),
            false => (0, 0),
        };
        format!(
            "{seed}\t{}\t{}\t{}\t{guard}\t{}\t{}\t{max_ttl_ms}\t{state}\t{}\t{}\t{}\t{}\t{}\t{}\t{renewing}\t{kept}\t{}\t{}\t{}\t{}\n",
            kind.name(),
            topology.name(),
            mode.name(),
            fault.name(),
            fault.loses(),
            verdict.grants,
            verdict.overlaps.len(),
            verdict.fences.len(),
            ms(verdict.pause_us),
            ms(of_majority_us),
            self.plan.wait_ms(),
            verdict.requests,
            verdict.us / 1_000,
            adapter.unwrap_or("-"),
            verdict.held,
        )
    }
}

const HEAD: &str = "seed\tserver\ttopology\tmode\tguard\tfault\tloses\tmax ttl ms\tstate\tgrants\toverlaps\tfences\tpause ms\tpause of majority ms\tC ms\trenewing\tkept\trequests\tms\tadapter\theld\n";

const RUNS_HEAD: &str =
    "seed\tcommit\tversion\tgroups\thours\trounds\trequests\thours of all groups\n";

impl Report {
    pub fn into(folder: &Path, seed: u64, groups: u64) -> Self {
        Self {
            into: folder.to_path_buf(),
            lines: Mutex::new((open(&folder.join("rounds.tsv"), HEAD), 0)),
            refused: AtomicUsize::new(0),
            run: Run {
                seed,
                commit: commit(),
                groups,
                start: Instant::now(),
            },
        }
    }

    pub fn add(&self, row: Row) {
        let mut lines = self.lines.lock().unwrap();
        lines.0.write_all(row.line().as_bytes()).unwrap();
        if row.is_suspicious() {
            eprint!("{}", row.told());
        }
        lines.1 += 1;
        let refused = row.findings.len() + row.lost().len();
        self.refused.fetch_add(refused, Ordering::Relaxed);
        if lines.1 % 100 == 0 {
            eprintln!("{} rounds", lines.1);
        }
    }

    /// Writes the sums, and fails the test if a promise was broken.
    pub fn finish(self) {
        let text = fs::read_to_string(self.into.join("rounds.tsv")).unwrap();
        let records: Vec<Record<'_>> = text.lines().skip(1).map(Record::read).collect();
        let new = usize::try_from(self.lines.into_inner().unwrap().1).unwrap();
        self.run.write(&self.into, &records[records.len() - new..]);
        // One server has no failovers.
        let is_one = |record: &Record<'_>| record.text("topology") == "single";
        let (single, records): (Vec<_>, Vec<_>) = records.into_iter().partition(is_one);
        eprint!("{}", table(&single, &["topology", "fault", "server"]));
        let broken = single.iter().filter(|record| !record.counts()).count();
        assert_eq!(broken, 0, "rounds of one server could not be played");

        let names = ["topology", "guard", "mode", "fault", "server"];
        let sums = table(&records, &names);
        fs::write(self.into.join("failovers.tsv"), sums).unwrap();
        eprint!("{}", table(&records, &names[..4]));
        let of = |guard: &str| -> Vec<&Record<'_>> {
            let records = records.iter();
            records
                .filter(|record| record.text("guard") == guard)
                .collect()
        };
        let (guarded, control) = (of("on"), of("off"));
        for (guard, records) in [("on", &guarded), ("off", &control)] {
            eprintln!("all\t{guard}\tall\tall\t{}", Sum::of(records).line());
        }

        let refused = self.refused.into_inner();
        assert_eq!(
            refused, 0,
            "the other judges, also of rounds without the guard"
        );
        let sum = Sum::of(&guarded);
        assert_eq!(sum.total("overlaps"), 0, "the guard was on");
        // A stall of the machine may spoil a round.
        let spoiled = sum.late() + sum.not_counted;
        assert!(
            100 * spoiled <= guarded.len(),
            "{spoiled} rounds were late, void or broken"
        );
        let fences: u64 = records.iter().map(|record| record.number("fences")).sum();
        assert_eq!(fences, 0, "a fence fell");
        let loses = |record: &&Record<'_>| record.text("loses") == "true";
        let losing: Vec<_> = control.into_iter().filter(loses).collect();
        let sum = Sum::of(&losing);
        let is_seen = 3 * sum.with_overlap() >= sum.counted.len() || losing.len() < 10;
        assert!(
            is_seen,
            "the control shows too few overlaps: {}",
            sum.line()
        );
    }
}

fn commit() -> String {
    let mut git = Command::new("git");
    let git = git.args(["rev-parse", "--short", "HEAD"]);
    let output = git.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_string()
}

fn open(path: &Path, head: &str) -> File {
    let is_new = !path.exists();
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    if is_new {
        file.write_all(head.as_bytes()).unwrap();
    }
    file
}

impl Run {
    /// A line of `runs.tsv`.
    fn write(&self, into: &Path, records: &[Record<'_>]) {
        let hours = self.start.elapsed().as_secs_f64() / 3_600.0;
        let sum = |name| {
            records
                .iter()
                .map(|record| record.number(name))
                .sum::<u64>()
        };
        let line = format!(
            "{}\t{}\t{}\t{}\t{hours:.3}\t{}\t{}\t{:.3}\n",
            self.seed,
            self.commit,
            env!("CARGO_PKG_VERSION"),
            self.groups,
            records.len(),
            sum("requests"),
            sum("ms") as f64 / 3_600_000.0
        );
        let mut file = open(&into.join("runs.tsv"), RUNS_HEAD);
        file.write_all(line.as_bytes()).unwrap();
        eprint!("{RUNS_HEAD}{line}");
    }
}

/// A line of `rounds.tsv`.
struct Record<'t>(Vec<&'t str>);

impl<'t> Record<'t> {
    fn read(line: &'t str) -> Self {
        let fields: Vec<_> = line.split('\t').collect();
        assert_eq!(fields.len(), HEAD.split('\t').count(), "{line}");
        Self(fields)
    }

    fn text(&self, name: &str) -> &'t str {
        let mut names = HEAD.trim_end().split('\t');
        let at = names.position(|known| known == name);
        self.0[at.expect("a column")]
    }

    /// 0 where there is none.
    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Whether it was played, within the conditions.
    fn counts(&self) -> bool {
        self.text("state") == "played"
    }

    /// Records of earlier campaigns count holders with shorter leases, too.
    fn has_long_leases(&self) -> bool {
        self.number("max ttl ms") >= LONG_TTL_MS
    }

    /// C counts from the promotion, or from when the primary first heard of a majority.
    fn is_late(&self) -> bool {
        let columns = ["pause of majority ms", "pause ms"];
        let pause_ms = columns.iter().find_map(|name| self.text(name).parse().ok());
        let is_guarded = self.text("guard") == "on";
        is_guarded && pause_ms.is_none_or(|ms: u64| ms > self.number("C ms") + LATE_MS)
    }
}

/// Sums of the rounds that these columns have in common.
fn table(records: &[Record<'_>], names: &[&str]) -> String {
    let mut groups: BTreeMap<Vec<&str>, Vec<&Record<'_>>> = BTreeMap::new();
    for record in records {
        let key = names.iter().map(|name| record.text(name)).collect();
        groups.entry(key).or_default().push(record);
    }
    let mut table = format!("{}\t{}", names.join("\t"), Sum::HEAD);
    for (key, records) in &groups {
        writeln!(table, "{}\t{}", key.join("\t"), Sum::of(records).line()).unwrap();
    }
    table
}

/// Some rounds, of which those count that were played within the conditions.
struct Sum<'r> {
    counted: Vec<&'r Record<'r>>,
    not_counted: usize,
}

impl<'r> Sum<'r> {
    const HEAD: &'static str = "rounds\tnot counted\tgrants\trounds with overlaps\toverlaps\tlate\trenewing\tkept\tholds of adapters\n";

    fn of(records: &[&'r Record<'r>]) -> Self {
        let all = records.iter().copied();
        let counted: Vec<_> = all.filter(|record| record.counts()).collect();
        Self {
            not_counted: records.len() - counted.len(),
            counted,
        }
    }

    fn total(&self, name: &str) -> u64 {
        self.counted.iter().map(|record| record.number(name)).sum()
    }

    fn late(&self) -> usize {
        let late = self.counted.iter().filter(|record| record.is_late());
        late.count()
    }

    fn with_overlap(&self) -> usize {
        let counted = self.counted.iter();
        counted.filter(|one| one.number("overlaps") > 0).count()
    }

    fn line(&self) -> String {
        let long = self.counted.iter().filter(|one| one.has_long_leases());
        let keeping = |name| long.clone().map(|one| one.number(name)).sum::<u64>();
        format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            self.counted.len(),
            self.not_counted,
            self.total("grants"),
            self.with_overlap(),
            self.total("overlaps"),
            self.late(),
            keeping("renewing"),
            keeping("kept"),
            self.total("held"),
        )
    }
}
