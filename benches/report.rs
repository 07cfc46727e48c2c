//! The output of a run: `results.md` with the goals and the pictures, for contributors, and in the
//! folder of the documents `results.tsv` with every figure and `tables.tsv` with the tables of each
//! part. `make plots` draws the pictures from the figures.

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
    quick: bool,
    /// For results.md.
    text: String,
    /// For tables.tsv: texts, and rows of tables.
    lines: Vec<String>,
    figures: Vec<String>,
}

impl Report {
    pub fn new(part: &'static str, title: &str, quick: bool) -> Self {
        println!("\n## {title}\n");
        Self {
            part,
            quick,
            text: format!("## {title}\n\n{}\n", environment::shown()),
            lines: Vec::new(),
            figures: Vec::new(),
        }
    }

    /// What the tables after it show, and how that was measured.
    pub fn say(&mut self, text: &str) {
        println!("{text}\n");
        let lines = text.lines().filter(|line| !line.is_empty());
        let lines = lines.map(|line| format!("{}\t{line}", self.part));
        self.lines.extend(lines);
    }

    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let rows = rows.iter().map(|row| row.join("\t"));
        let rows: Vec<String> = [header.join("\t")].into_iter().chain(rows).collect();
        println!("{}\n", rows.join("\n"));
        let lines = rows.iter().map(|row| format!("{}\t{row}", self.part));
        self.lines.extend(lines);
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
        let name = format!("{FIGURES}{name}");
        write!(self.text, "\n{}\n", environment::picture(&name, alt)).unwrap();
    }

    /// Replaces the former results of this part. Those of other parts stay unchanged.
    pub fn write(self) {
        let folder = environment::folder(self.quick);
        let head = "part\tkind\tserver\tmeasure\tsubject\tmedian\tlow\thigh\tgoal\tmet";
        let figures = replace(folder.join("results.tsv"), head, self.part, self.figures);
        let head = "part\ttext, or the cells of a row";
        replace(folder.join("tables.tsv"), head, self.part, self.lines);

        let markdown = page(self.quick);
        let mut sections = sections_of(&markdown);
        let text = format!("{MARK}{} -->\n{}", self.part, self.text.trim_end());
        sections.insert(place_of(self.part), text);
        write_document(&markdown, &figures, sections);
    }
}

/// Replaces the lines of a part in a file, and returns all lines but the head.
fn replace(file: PathBuf, head: &str, part: &str, lines: Vec<String>) -> Vec<String> {
    let former = fs::read_to_string(&file).unwrap_or_default();
    let prefix = format!("{part}\t");
    let kept = former
        .lines()
        .skip(1)
        .filter(|line| !line.starts_with(&prefix));
    let mut all: Vec<String> = kept.map(String::from).chain(lines).collect();
    all.sort_by_key(|line| place_of(line.split('\t').next().unwrap_or_default()));
    fs::write(&file, format!("{head}\n{}\n", all.join("\n"))).expect("to write the results");
    all
}

/// Writes the head of `results.md` and its goals from the existing figures.
pub fn write_head(quick: bool) {
    let folder = environment::folder(quick);
    let figures = fs::read_to_string(folder.join("results.tsv")).expect("figures");
    let figures: Vec<String> = figures.lines().skip(1).map(String::from).collect();
    let markdown = page(quick);
    write_document(&markdown, &figures, sections_of(&markdown));
}

/// The page, which the documents for users leave out. That of a quick run is beside its figures.
fn page(quick: bool) -> PathBuf {
    match quick {
        true => environment::folder(true).join("results.md"),
        false => Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results.md"),
    }
}

/// From the page to the figures.
const FIGURES: &str = "../docs/benchmarks/";

/// Prepares the files for a run of these parts, or of all if there is none. All figures are of one
/// build: a run of all parts begins them anew, and parts of another build beside the asked ones are
/// an error.
pub fn begin(parts: &[String], quick: bool) -> Result<(), String> {
    if quick {
        return Ok(()); // Its figures say nothing.
    }
    let folder = environment::folder(false);
    let files = [
        page(false),
        folder.join("results.tsv"),
        folder.join("tables.tsv"),
    ];
    let (build, changed) = environment::build();
    if changed {
        return Err("the sources of the module have changed: commit them first".into());
    }
    if parts.is_empty() {
        for file in &files {
            fs::remove_file(file).ok();
        }
        return Ok(());
    }
    let begin = format!("{}{build}", environment::BUILD);
    let sections = sections_of(&files[0]);
    let others: Vec<_> = crate::PARTS
        .iter()
        .enumerate()
        .filter(|(place, (name, _))| {
            let section = sections.get(place);
            let differs = section.is_some_and(|text| !text.lines().any(|l| l.starts_with(&begin)));
            differs && !parts.iter().any(|part| part == name)
        })
        .map(|(_, (name, _))| *name)
        .collect();
    match &others[..] {
        [] => Ok(()),
        others => Err(format!(
            "this build is {build}, and {} has another build's {}: measure all parts, or remove {files:?}",
            files[0].display(),
            others.join(", ")
        )),
    }
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
const HEAD: &str = "# All goals

For contributors who check or repeat the measurements. `make bench` writes this page, part by part. [tables.tsv](../docs/benchmarks/tables.tsv) has the tables of each part, and how to read them; \
[results.tsv](../docs/benchmarks/results.tsv) has every figure.

The server runs on one core, the clients on the other. The rivals take turns, round by round. A figure is the median of its rounds, with the smallest and the largest in brackets. A ratio compares figures of one round. Times are this machine's; the ratios are what counts.

These differ: memory, bytes and instructions of places, and turns of clients that slice or poll have one measurement. Polling has one round, on Redis 8.2.3. \
Contended locks run before the lists beside them. A million deadlines have two rounds.

The goal of fairness is for a hold of 0 ms. With 1 ms a client has five to eight turns in a round, and one more makes 0.992 to 0.997 of Jain's index.
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

/// For each goal, its worst case and the number of cases that meet it.
fn goals(figures: &[String]) -> String {
    let all: Vec<Measured> = figures
        .iter()
        .filter_map(|line| Measured::read(line))
        .collect();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for goal in &all {
        if !seen.contains(&(goal.goal, goal.bound)) {
            seen.push((goal.goal, goal.bound));
        }
    }
    let mut table =
        "| goal | bound | its worst case | met |\n| --- | --- | --- | --- |\n".to_string();
    for (goal, bound) in seen {
        let cases = all
            .iter()
            .filter(|case| (case.goal, case.bound) == (goal, bound));
        let cases: Vec<&Measured> = cases.collect();
        let worst =
            cases.iter().copied().reduce(
                |one, other| {
                    if other.is_worse_than(one) {
                        other
                    } else {
                        one
                    }
                },
            );
        let Some(worst) = worst else { continue };
        let met = cases.iter().filter(|case| case.is_met).count();
        let met = match cases.len() {
            count if met == count => format!("all {count}"),
            count => format!("**{met} of {count}**"),
        };
        writeln!(
            table,
            "| {goal} | {bound} | {}, {} | {met} |",
            worst.shown(),
            worst.server,
        )
        .unwrap();
    }
    table
}
