//! The output of a run: `libraries.md` with a table, `libraries.tsv` with every figure, and a
//! chart.

use std::fmt::Write as _;
use std::fs;

use crate::catalogue::{Language, LANGUAGES};
use crate::stats::{shown_us, Spread};
use crate::{chart, environment, fixture, Figures, Measured, Run, CLIENTS, HOLD_MS};

/// The text before this was written by hand.
const MARK: &str = "<!-- Below this line `make bench-peers` writes. -->\n";
const HEAD: &str = "# Lock libraries, beside this one\n\n";

const COLUMNS: [&str; 12] = [
    "library",
    "waits by",
    "clients",
    "hand-offs/s",
    "acquisitions/s",
    "wait p50",
    "p99",
    "longest",
    "Jain",
    "starved",
    "server commands each",
    "server CPU µs each",
];

/// One of the figures.
type Figure = fn(&Figures) -> f64;

pub fn write(run: &Run, all: &[Measured], left_out: &[&Language]) {
    let folder = environment::folder(run.quick);
    chart::draw(
        &folder.join("libraries.svg"),
        fixture::name(run.kind),
        all,
        left_out,
    );
    fs::write(folder.join("libraries.tsv"), figures(run, all)).expect("to write the figures");

    let path = folder.join("libraries.md");
    let former = fs::read_to_string(&path).unwrap_or_default();
    let by_hand = former.split_once(MARK).map_or(HEAD, |(text, _)| text);
    let text = format!(
        "{by_hand}{MARK}\n## {}, the lock held for {HOLD_MS} ms\n\n{}\n{} rounds of {:.1} s with each library, in turns; medians, with the \
         smallest and the largest.\n\n![Hand-offs per second by library](libraries.svg)\n\n{}\nAll figures are in [libraries.tsv](libraries.tsv).\n",
        fixture::name(run.kind),
        environment::shown(),
        run.rounds,
        run.time.as_secs_f64(),
        table(all, left_out),
    );
    fs::write(&path, &text).expect("to write the results");
    println!("{text}\nwritten: {}", path.display());
}

fn table(all: &[Measured], left_out: &[&Language]) -> String {
    let mut table = format!("| {} |\n| --- | --- |", COLUMNS.join(" | "));
    table.push_str(&" ---: |".repeat(COLUMNS.len() - 2));
    table.push('\n');
    let nothing = " |".repeat(COLUMNS.len() - 1);
    for language in languages(all) {
        writeln!(table, "| **{}** |{nothing}", language.name).unwrap();
        for library in language.libraries {
            for clients in CLIENTS {
                let mut of = all
                    .iter()
                    .filter(|one| std::ptr::eq(one.library, library) && one.clients == clients);
                let row = row(of.next().expect("each library with each number of clients"));
                writeln!(table, "| {} |", row.join(" | ")).unwrap();
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
        measured.clients.to_string(),
    ];
    if measured.rounds.is_empty() {
        row.push("failed".into());
        row.resize(COLUMNS.len(), String::new());
        return row;
    }
    // A library that polls may reach less than one.
    let rate = |spread: Spread| spread.shown(if spread.median < 100.0 { 1 } else { 0 });
    row.extend([
        rate(of(|figures| figures.hand_offs)),
        rate(of(|figures| figures.acquisitions)),
        shown_us(of(|figures| figures.waits[0]).median),
        shown_us(of(|figures| figures.waits[1]).median),
        shown_us(of(|figures| figures.waits[2]).median),
        format!("{:.3}", of(|figures| figures.jain).median),
        format!("{:.0}", of(|figures| figures.starved).median),
        of(|figures| figures.commands).shown(1),
        of(|figures| figures.cpu_us).shown(0),
    ]);
    row
}

fn figures(run: &Run, all: &[Measured]) -> String {
    let mut text = "server\tlanguage\tlibrary\tclients\tmeasure\tmedian\tlow\thigh\n".to_string();
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
                "{server}\t{}\t{}\t{}\t{measure}\t{median:.4}\t{low:.4}\t{high:.4}",
                language.name,
                language.title(measured.library),
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
