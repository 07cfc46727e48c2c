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

/// So many clients are in the table; the figures have the others.
const CLIENTS: usize = 16;

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
        "{by_hand}{MARK}\n## {}\n\n{}\n{}\nMedians, {CLIENTS} clients. The picture shows the hold of {charted_ms} \
         ms.\n\n{}\n\n{}",
        fixture::name(run.kind),
        environment::shown(),
        rounds(run),
        environment::picture(
            "libraries",
            "Hand-offs and acquisitions per second by library"
        ),
        table(run, all, left_out),
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

/// A row for each library: without a hold, or with the shortest, and with the longest.
fn table(run: &Run, all: &[Measured], left_out: &[&Language]) -> String {
    let shortest = run.holds_ms.iter().min().copied().unwrap_or_default();
    let longest = run.holds_ms.iter().max().copied().unwrap_or_default();
    let mut table = format!(
        "| library | waits by | {shortest} ms: acquisitions/s | hand-offs/s | {longest} ms: longest wait, of ideal \
         | starved | server commands each |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
    );
    for language in languages(all) {
        for library in language.libraries {
            let at = |hold_ms| {
                let mut of = all.iter().filter(|one| std::ptr::eq(one.library, library));
                of.find(|one| (one.hold_ms, one.clients) == (hold_ms, CLIENTS))
            };
            let cells = [at(shortest).map(rates), at(longest).map(waits)];
            let cells: Vec<String> = cells.into_iter().flatten().flatten().collect();
            let (title, waits) = (language.title(library), library.waits);
            let name = language.name;
            writeln!(
                table,
                "| {name}: {title} | {waits} | {} |",
                cells.join(" | ")
            )
            .unwrap();
        }
    }
    for language in left_out {
        writeln!(
            table,
            "| {}: not set up, left out | | | | | | |",
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

fn rates(measured: &Measured) -> Vec<String> {
    let figures: [Figure; 2] = [|figures| figures.acquisitions, |figures| figures.hand_offs];
    figures.map(|figure| shown(measured, figure)).to_vec()
}

fn waits(measured: &Measured) -> Vec<String> {
    let longest_us = measured.spread(|figures| figures.waits[2]).median;
    let ideal_us = holds::ideal_wait_us(measured.hold_ms, measured.clients);
    let share = ideal_us.map_or(String::new(), |us| format!(", {:.2}", longest_us / us));
    vec![
        format!("{}{share}", shown_us(longest_us)),
        shown(measured, |figures| figures.starved),
        shown(measured, |figures| figures.commands),
    ]
}

fn shown(measured: &Measured, figure: Figure) -> String {
    match measured.rounds.is_empty() {
        true => "failed".into(),
        false => format!("{:.0}", measured.spread(figure).median),
    }
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
