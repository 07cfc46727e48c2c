//! The output of a run: `libraries.md` with a table, and `libraries.tsv` with every figure. `make
//! plots` draws the picture from the figures.

use std::fmt::Write as _;
use std::fs;

use crate::catalogue::{Language, LANGUAGES};
use crate::stats::{shown_us, Spread};
use crate::{environment, fixture, holds, Figures, Measured, Run};

/// The text before this was written by hand.
const MARK: &str = "<!-- Below this line `make bench-peers` writes. -->\n";
const HEAD: &str = "# Lock libraries, beside this one\n\n";

const COLUMNS: [&str; 14] = [
    "library",
    "waits by",
    "hold",
    "clients",
    "acquisitions/s",
    "hand-offs/s",
    "wait p50",
    "p99",
    "longest",
    "of ideal",
    "Jain",
    "starved",
    "server commands each",
    "server CPU µs each",
];

/// One of the figures.
type Figure = fn(&Figures) -> f64;

pub fn write(run: &Run, all: &[Measured], left_out: &[&Language]) {
    let folder = environment::folder(run.quick);
    let charted_ms = holds::charted(&run.holds_ms);
    fs::write(folder.join("libraries.tsv"), figures(run, all)).expect("to write the figures");

    let path = folder.join("libraries.md");
    let former = fs::read_to_string(&path).unwrap_or_default();
    let by_hand = former.split_once(MARK).map_or(HEAD, |(text, _)| text);
    let text = format!(
        "{by_hand}{MARK}\n## {}, the lock held for {}\n\n{}\n{}\nMedians, with the smallest and the largest. The \
         picture shows the hold of {charted_ms} ms.\n\n{}\n\n{}\nAll figures are in [libraries.tsv](libraries.tsv).\n",
        fixture::name(run.kind),
        holds::shown(&run.holds_ms),
        environment::shown(),
        rounds(run),
        environment::picture(
            "libraries",
            "Hand-offs and acquisitions per second by library"
        ),
        table(all, left_out),
    );
    fs::write(&path, &text).expect("to write the results");
    println!("{text}\nwritten: {}", path.display());
}

/// A line for each hold: how many rounds, and how long they are.
fn rounds(run: &Run) -> String {
    let mut text = "The libraries take turns, round by round:\n\n".to_string();
    for &hold_ms in &run.holds_ms {
        let rounds = holds::rounds(hold_ms, run.rounds);
        let of = if rounds == 1 { "round" } else { "rounds" };
        let clients = holds::clients(hold_ms).iter();
        let times = clients.map(|clients| holds::round_time(hold_ms, *clients, run.shortest));
        let mut seconds: Vec<String> = times
            .map(|time| format!("{:.1}", time.as_secs_f64()))
            .collect();
        seconds.dedup();
        let seconds = seconds.join(", ");
        writeln!(text, "- hold of {hold_ms} ms: {rounds} {of} of {seconds} s").unwrap();
    }
    text
}

fn table(all: &[Measured], left_out: &[&Language]) -> String {
    let mut table = format!("| {} |\n| --- | --- |", COLUMNS.join(" | "));
    table.push_str(&" ---: |".repeat(COLUMNS.len() - 2));
    table.push('\n');
    let nothing = " |".repeat(COLUMNS.len() - 1);
    for language in languages(all) {
        writeln!(table, "| **{}** |{nothing}", language.name).unwrap();
        for library in language.libraries {
            // They were measured hold by hold, and within that by the number of clients.
            let of = all.iter().filter(|one| std::ptr::eq(one.library, library));
            for measured in of {
                writeln!(table, "| {} |", row(measured).join(" | ")).unwrap();
            }
        }
    }
    for language in left_out {
        writeln!(
            table,
            "| **{}**: not set up, left out |{nothing}",
            language.name
        )
        .unwrap();
    }
    table
}

/// The libraries that were measured.
pub fn languages(all: &[Measured]) -> impl Iterator<Item = &'static Language> + '_ {
    let measured = |language: &&Language| all.iter().any(|one| one.language.name == language.name);
    LANGUAGES.iter().filter(measured)
}

fn row(measured: &Measured) -> Vec<String> {
    let of = |figure: Figure| measured.spread(figure);
    let library = measured.library;
    let mut row = vec![
        measured.language.title(library),
        library.waits.to_string(),
        format!("{} ms", measured.hold_ms),
        measured.clients.to_string(),
    ];
    if measured.rounds.is_empty() {
        row.push("failed".into());
        row.resize(COLUMNS.len(), String::new());
        return row;
    }
    let longest_us = of(|figures| figures.waits[2]).median;
    let ideal = holds::ideal_wait_us(measured.hold_ms, measured.clients);
    // A library that polls may reach less than one.
    let rate = |spread: Spread| spread.shown(if spread.median < 100.0 { 1 } else { 0 });
    row.extend([
        rate(of(|figures| figures.acquisitions)),
        rate(of(|figures| figures.hand_offs)),
        shown_us(of(|figures| figures.waits[0]).median),
        shown_us(of(|figures| figures.waits[1]).median),
        shown_us(longest_us),
        ideal.map_or("-".into(), |ideal_us| {
            format!("{:.2}", longest_us / ideal_us)
        }),
        format!("{:.3}", of(|figures| figures.jain).median),
        format!("{:.0}", of(|figures| figures.starved).median),
        of(|figures| figures.commands).shown(1),
        of(|figures| figures.cpu_us).shown(0),
    ]);
    row
}

fn figures(run: &Run, all: &[Measured]) -> String {
    let mut text =
        "server\tlanguage\tlibrary\thold ms\tclients\tmeasure\tmedian\tlow\thigh\n".to_string();
    let measures: [(&str, Figure); 9] = [
        ("hand-offs/s", |figures| figures.hand_offs),
        ("acquisitions/s", |figures| figures.acquisitions),
        ("wait p50 µs", |figures| figures.waits[0]),
        ("wait p99 µs", |figures| figures.waits[1]),
        ("wait max µs", |figures| figures.waits[2]),
        ("Jain", |figures| figures.jain),
        ("starved", |figures| figures.starved),
        ("commands per acquisition", |figures| figures.commands),
        ("server CPU µs per acquisition", |figures| figures.cpu_us),
    ];
    for measured in all.iter().filter(|measured| !measured.rounds.is_empty()) {
        for (measure, figure) in measures {
            let Spread { median, low, high } = measured.spread(figure);
            let (server, language) = (fixture::name(run.kind), measured.language);
            writeln!(
                text,
                "{server}\t{}\t{}\t{}\t{}\t{measure}\t{median:.4}\t{low:.4}\t{high:.4}",
                language.name,
                language.title(measured.library),
                measured.hold_ms,
                measured.clients,
            )
            .unwrap();
        }
    }
    text
}

impl Measured {
    pub fn spread(&self, figure: Figure) -> Spread {
        let values: Vec<f64> = self.rounds.iter().map(figure).collect();
        Spread::of(&values)
    }
}
