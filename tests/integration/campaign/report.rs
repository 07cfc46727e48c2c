//! A line per round while the campaign goes on, and the sums at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::judge::Verdict;
use super::plan::{Fault, Mode, Plan};

/// How much later than promised the first new grant may come.
const LATE_MS: u64 = 500;
/// C counts from the first acknowledgement of the replicas, which have to come to the new primary.
const LATE_OF_QUORUM_MS: u64 = 1_500;

pub struct Row {
    pub plan: Plan,
    /// `None` if the round could not be played.
    pub verdict: Option<Verdict>,
}

pub struct Report {
    into: PathBuf,
    lines: Mutex<(File, Vec<Row>)>,
}

impl Row {
    /// A breach of what the guard promises, or of the conditions.
    pub fn is_suspicious(&self) -> bool {
        let breaks = |verdict: &Verdict| !verdict.overlaps.is_empty() || self.is_late();
        let Some(verdict) = &self.verdict else {
            return true;
        };
        !verdict.fences.is_empty() || (self.plan.is_guarded && breaks(verdict))
    }

    fn pause_ms(&self) -> Option<u64> {
        Some(self.verdict.as_ref()?.pause_us? / 1_000)
    }

    fn is_late(&self) -> bool {
        let late_ms = match self.plan.mode {
            Mode::Quorum => LATE_OF_QUORUM_MS,
            _ => LATE_MS,
        };
        self.pause_ms()
            .is_none_or(|ms| ms > self.plan.wait_ms() + late_ms)
    }

    /// Whether it was played, within the conditions.
    fn counts(&self) -> bool {
        self.verdict
            .as_ref()
            .is_some_and(|verdict| !verdict.is_void)
    }

    fn overlaps(&self) -> usize {
        self.verdict
            .as_ref()
            .map_or(0, |verdict| verdict.overlaps.len())
    }

    fn guard(&self) -> &'static str {
        if self.plan.is_guarded {
            "on"
        } else {
            "off"
        }
    }

    fn line(&self) -> String {
        let Plan {
            seed,
            kind,
            mode,
            fault,
            max_ttl_ms,
            ..
        } = &self.plan;
        let state = match &self.verdict {
            None => "broken",
            Some(verdict) if verdict.is_void => "void",
            Some(_) => "played",
        };
        let verdict = self.verdict.clone().unwrap_or_default();
        let pause_ms = self.pause_ms().map_or("-".into(), |ms| ms.to_string());
        format!(
            "{seed}\t{}\t{}\t{}\t{}\t{max_ttl_ms}\t{state}\t{}\t{}\t{}\t{pause_ms}\t{}\t{}\t{}\n",
            kind.name(),
            mode.name(),
            self.guard(),
            fault.name(),
            verdict.grants,
            verdict.overlaps.len(),
            verdict.fences.len(),
            self.plan.wait_ms(),
            verdict.renewing,
            verdict.kept
        )
    }
}

const HEAD: &str = "seed\tserver\tmode\tguard\tfault\tmax ttl ms\tstate\tgrants\toverlaps\tfences\tpause ms\tC ms\trenewing\tkept\n";

impl Report {
    pub fn into(folder: &Path) -> Self {
        let mut file = File::create(folder.join("rounds.tsv")).unwrap();
        file.write_all(HEAD.as_bytes()).unwrap();
        Self {
            into: folder.to_path_buf(),
            lines: Mutex::new((file, Vec::new())),
        }
    }

    pub fn add(&self, row: Row) {
        let mut lines = self.lines.lock().unwrap();
        lines.0.write_all(row.line().as_bytes()).unwrap();
        if row.is_suspicious() {
            eprint!("suspicious: {}", row.line());
            let verdict = row.verdict.iter();
            for breach in verdict.flat_map(|verdict| verdict.overlaps.iter().chain(&verdict.fences))
            {
                eprintln!("  {breach}");
            }
        }
        lines.1.push(row);
        if lines.1.len() % 100 == 0 {
            eprintln!("{} rounds", lines.1.len());
        }
    }

    /// Writes the sums, and fails the test if a promise was broken.
    pub fn finish(self) {
        let (_, rows) = self.lines.into_inner().unwrap();
        let mut by_group: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in &rows {
            let Plan {
                kind, mode, fault, ..
            } = row.plan;
            by_group
                .entry((row.guard(), mode, fault, kind.name()))
                .or_default()
                .push(row);
        }
        let mut sums = format!("guard\tmode\tfault\tserver\t{}", Sum::HEAD);
        for ((guard, mode, fault, server), rows) in &by_group {
            let (mode, fault, sum) = (mode.name(), fault.name(), Sum::of(rows));
            writeln!(sums, "{guard}\t{mode}\t{fault}\t{server}\t{}", sum.line()).unwrap();
        }
        fs::write(self.into.join("failovers.tsv"), sums).unwrap();

        let mut by_fault: BTreeMap<(&str, Mode, Fault), Vec<&Row>> = BTreeMap::new();
        for row in &rows {
            let key = (row.guard(), row.plan.mode, row.plan.fault);
            by_fault.entry(key).or_default().push(row);
        }
        eprint!("guard\tmode\tfault\t{}", Sum::HEAD);
        for ((guard, mode, fault), rows) in &by_fault {
            eprintln!(
                "{guard}\t{}\t{}\t{}",
                mode.name(),
                fault.name(),
                Sum::of(rows).line()
            );
        }
        let of = |guard: &'static str| rows.iter().filter(move |row| row.guard() == guard);
        let (guarded, control): (Vec<_>, Vec<_>) = (of("on").collect(), of("off").collect());
        eprintln!("on\tall\tall\t{}", Sum::of(&guarded).line());
        eprintln!("off\tall\tall\t{}", Sum::of(&control).line());

        let sum = Sum::of(&guarded);
        assert_eq!(sum.overlaps, 0, "the guard was on");
        // A stall of the machine may spoil a round.
        let spoiled = sum.late + sum.not_counted;
        assert!(
            100 * spoiled <= guarded.len(),
            "{spoiled} rounds were late, void or broken"
        );
        let fences = rows.iter().filter_map(|row| row.verdict.as_ref());
        assert!(
            fences.clone().all(|verdict| verdict.fences.is_empty()),
            "a fence fell"
        );
        let losing: Vec<_> = control
            .into_iter()
            .filter(|row| row.plan.fault.loses())
            .collect();
        let sum = Sum::of(&losing);
        let is_seen = 3 * sum.with_overlap >= sum.rounds;
        assert!(
            is_seen,
            "the control shows too few overlaps: {}",
            sum.line()
        );
    }
}

/// The sum of some rounds.
struct Sum {
    rounds: usize,
    not_counted: usize,
    grants: usize,
    with_overlap: usize,
    overlaps: usize,
    late: usize,
    pauses_ms: Vec<u64>,
    renewing: usize,
    kept: usize,
}

impl Sum {
    const HEAD: &'static str = "rounds\tnot counted\tgrants\trounds with overlaps\toverlaps\tlate\tpause p50 ms\tpause p99 ms\trenewing\tkept\n";

    fn of(rows: &[&Row]) -> Self {
        let counted: Vec<_> = rows.iter().copied().filter(|row| row.counts()).collect();
        let sum = |of: fn(&Verdict) -> usize, rows: &[&Row]| -> usize {
            rows.iter()
                .filter_map(|row| row.verdict.as_ref())
                .map(of)
                .sum()
        };
        // Shorter leases end with a promotion.
        let long: Vec<_> = counted
            .iter()
            .copied()
            .filter(|row| row.plan.max_ttl_ms > 2_000)
            .collect();
        let mut pauses_ms: Vec<_> = counted.iter().filter_map(|row| row.pause_ms()).collect();
        pauses_ms.sort_unstable();
        Self {
            rounds: counted.len(),
            not_counted: rows.len() - counted.len(),
            grants: sum(|verdict| verdict.grants, &counted),
            with_overlap: counted.iter().filter(|row| row.overlaps() > 0).count(),
            overlaps: counted.iter().map(|row| row.overlaps()).sum(),
            late: counted.iter().filter(|row| row.is_late()).count(),
            pauses_ms,
            renewing: sum(|verdict| verdict.renewing, &long),
            kept: sum(|verdict| verdict.kept, &long),
        }
    }

    fn line(&self) -> String {
        let pause = |percent: usize| {
            let at = (self.pauses_ms.len() * percent).div_ceil(100).max(1) - 1;
            self.pauses_ms.get(at).map_or("-".into(), u64::to_string)
        };
        let Self {
            rounds,
            not_counted,
            grants,
            with_overlap,
            overlaps,
            late,
            renewing,
            kept,
            ..
        } = self;
        let (p50, p99) = (pause(50), pause(99));
        format!("{rounds}\t{not_counted}\t{grants}\t{with_overlap}\t{overlaps}\t{late}\t{p50}\t{p99}\t{renewing}\t{kept}")
    }
}
