//! The output of a run: `results.md` with a section per part, and `results.tsv` with every figure.
//! `make plots` draws the pictures from the figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::Kind;
use crate::stats::Spread;
use crate::{environment, fixture};

/// The bound of a measured ratio or duration.
#[derive(Clone, Copy)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// The results of one part of the benchmark.
pub struct Report {
    part: &'static str,
    folder: PathBuf,
    text: String,
    figures: Vec<String>,
}

impl Report {
    pub fn new(part: &'static str, title: &str, quick: bool) -> Self {
        let folder = environment::folder(quick);
        println!("\n## {title}\n");
        Self {
            part,
            text: format!("## {title}\n\n{}\n", environment::shown()),
            folder,
            figures: Vec::new(),
        }
    }

    pub fn say(&mut self, text: &str) {
        println!("{text}\n");
        write!(self.text, "{text}\n\n").unwrap();
    }

    /// Columns after the first are aligned to the right.
    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let mut table = format!("| {} |\n|", header.join(" | "));
        for n in 0..header.len() {
            table.push_str(if n == 0 { " --- |" } else { " ---: |" });
        }
        table.push('\n');
        for row in rows {
            writeln!(table, "| {} |", row.join(" | ")).unwrap();
        }
        self.say(table.trim_end());
    }

    /// One figure for `results.tsv`.
    pub fn figure(&mut self, kind: Kind, measure: &str, subject: &str, value: Spread) {
        let (part, server) = (self.part, fixture::name(kind));
        let Spread { median, low, high } = value;
        self.figures.push(format!(
            "{part}\tfigure\t{server}\t{measure}\t{subject}\t{median:.4}\t{low:.4}\t{high:.4}\t\t"
        ));
    }

    /// A figure that has a goal.
    pub fn goal(&mut self, kind: Kind, goal: &str, subject: &str, bound: Bound, value: Spread) {
        let (part, server) = (self.part, fixture::name(kind));
        let Spread { median, low, high } = value;
        let (bound, met) = match bound {
            Bound::AtMost(limit) => (format!("<= {limit}"), median <= limit),
            Bound::AtLeast(limit) => (format!(">= {limit}"), median >= limit),
        };
        let met = if met { "met" } else { "missed" };
        self.figures.push(format!(
            "{part}\tgoal\t{server}\t{goal}\t{subject}\t{median:.4}\t{low:.4}\t{high:.4}\t{bound}\t{met}"
        ));
        println!(
            "{server}: {goal}, {subject}: {} {bound}: {met}",
            value.shown(3)
        );
    }

    /// Shows the picture of that name.
    pub fn picture(&mut self, name: &str, alt: &str) {
        self.say(&environment::picture(name, alt));
    }

    /// Replaces the former results of this part. Those of other parts stay unchanged.
    pub fn write(self) {
        let tsv = self.folder.join("results.tsv");
        let markdown = self.folder.join("results.md");
        let former = fs::read_to_string(&tsv).unwrap_or_default();
        let prefix = format!("{}\t", self.part);
        let kept = former
            .lines()
            .skip(1)
            .filter(|line| !line.starts_with(&prefix));
        let mut figures: Vec<String> = kept.map(String::from).collect();
        figures.extend(self.figures);
        figures.sort_by_key(|line| place_of(line.split('\t').next().unwrap_or_default()));
        let head = "part\tkind\tserver\tmeasure\tsubject\tmedian\tlow\thigh\tgoal\tmet\n";
        fs::write(&tsv, format!("{head}{}\n", figures.join("\n"))).expect("to write the figures");

        let mut sections = sections_of(&markdown);
        let text = format!("{MARK}{} -->\n{}", self.part, self.text.trim_end());
        sections.insert(place_of(self.part), text);
        write_document(&markdown, &figures, sections);
    }
}

/// Writes the head of `results.md` and its goals from the existing figures.
pub fn write_head(quick: bool) {
    let folder = environment::folder(quick);
    let figures = fs::read_to_string(folder.join("results.tsv")).expect("figures");
    let figures: Vec<String> = figures.lines().skip(1).map(String::from).collect();
    let markdown = folder.join("results.md");
    write_document(&markdown, &figures, sections_of(&markdown));
}

fn sections_of(markdown: &Path) -> BTreeMap<usize, String> {
    let text = fs::read_to_string(markdown).unwrap_or_default();
    let sections = text.split(MARK).skip(1).map(|section| {
        let (part, text) = section.split_once(" -->\n").unwrap_or_default();
        let text = format!("{MARK}{part} -->\n{}", text.trim_end());
        (place_of(part), text)
    });
    sections.collect()
}

fn write_document(markdown: &Path, figures: &[String], sections: BTreeMap<usize, String>) {
    let sections: Vec<String> = sections.into_values().collect();
    let text = format!("{HEAD}\n{}\n{}\n", goals(figures), sections.join("\n\n"));
    fs::write(markdown, text).expect("to write the results");
    println!("written: {}", markdown.display());
}

const MARK: &str = "<!-- part: ";
const HEAD: &str = "# What a lock costs

This page is for contributors who check or repeat the measurements. `make bench` writes it, part by part. A comparison uses figures of one run of its part.

The rivals take turns, round by round. Each figure is the median of its rounds, with the smallest and the largest beside it. A ratio compares figures of the same round. Exceptions:

- polling (many clients, one lock): one round, on Redis 8.2.3 only;
- memory: once each;
- contended locks (growth): all rounds of the locks, then all of the lists, on servers of their own. A ratio compares two rounds of the same number, not of the same time;
- places: bytes (a section of its own) and instructions once each. The CPU of one number of places comes after that of another;
- turns of clients that slice or poll: once each;
- time that runs out: one after the other, a single time each. The smallest and the largest are those of four parts of the results;
- a million deadlines: two rounds, so that the median is their mean.

Times are this machine's; the ratios are what counts. All figures are in [results.tsv](results.tsv).

## The goals

The tables below and results.tsv have every case of every goal. This table has the worst case of each server.

The goal of fairness is for a hold of 0 ms. With 1 ms, each of 64 or 256 clients has only five to eight turns in a round. In a fair queue they then differ by one turn at most.
That makes 0.992 to 0.997 of Jain's index, also for the BLPOP / LPUSH ceiling. The table of 1 ms shows these, and no goal judges them.
";

fn place_of(part: &str) -> usize {
    let place = crate::PARTS.iter().position(|(name, _)| *name == part);
    place.unwrap_or(crate::PARTS.len())
}

/// A goal's figure as `results.tsv` has it.
struct Measured<'a> {
    server: &'a str,
    goal: &'a str,
    subject: &'a str,
    values: [f64; 3],
    bound: &'a str,
    is_met: bool,
}

impl<'a> Measured<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, "goal", server, goal, subject, median, low, high, bound, met] = fields[..] else {
            return None;
        };
        Some(Self {
            server,
            goal,
            subject,
            values: [median, low, high].map(|text| text.parse().unwrap_or(f64::NAN)),
            bound,
            is_met: met == "met",
        })
    }

    fn is_worse_than(&self, other: &Self) -> bool {
        let (this, that) = (self.values[0], other.values[0]);
        if self.bound.starts_with('<') {
            this > that
        } else {
            this < that
        }
    }

    fn shown(&self) -> String {
        let [median, low, high] = self.values.map(|value| match value {
            value if value >= 100.0 => format!("{value:.0}"),
            value => format!("{value:.3}"),
        });
        let values = match low == high {
            true => median,
            false => format!("{median} ({low} to {high})"),
        };
        match self.subject {
            "" => values,
            subject => format!("{values} at {subject}"),
        }
    }
}

/// For each goal and server, the worst case and the number of cases that meet it.
fn goals(figures: &[String]) -> String {
    let all: Vec<Measured> = figures
        .iter()
        .filter_map(|line| Measured::read(line))
        .collect();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut table =
        "| goal | bound | server | its worst case | met |\n| --- | --- | --- | --- | --- |\n"
            .to_string();
    for goal in &all {
        if !seen.contains(&(goal.goal, goal.bound)) {
            seen.push((goal.goal, goal.bound));
        }
    }
    for (goal, bound) in seen {
        for server in SERVERS {
            let cases = all
                .iter()
                .filter(|case| (case.goal, case.bound, case.server) == (goal, bound, server));
            let cases: Vec<&Measured> = cases.collect();
            let worst =
                cases
                    .iter()
                    .copied()
                    .reduce(|one, other| if other.is_worse_than(one) { other } else { one });
            let Some(worst) = worst else { continue };
            let met = cases.iter().filter(|case| case.is_met).count();
            let met = match cases.len() {
                1 if met == 1 => "met".to_string(),
                1 => "**missed**".to_string(),
                count if met == count => format!("met, all {count}"),
                count => format!("**missed** in {} of {count}", count - met),
            };
            writeln!(
                table,
                "| {goal} | {bound} | {server} | {} | {met} |",
                worst.shown()
            )
            .unwrap();
        }
    }
    table
}

const SERVERS: [&str; 4] = [
    "Redis 6.2.14",
    "Redis 7.0.15",
    "Redis 8.2.3",
    "Valkey 8.0.1",
];
