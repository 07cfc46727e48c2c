//! Plots, and the figures from which they are drawn. scripts/plots writes into each plot which rows
//! it has drawn.

use std::fs;
use std::path::Path;

/// The FNV-1a hash of 64 bits, as in scripts/plots/theme.py.
fn fnv1a64(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The line of a plot that names its rows:
/// `Drawn from FILE, the rows that begin with "WORD" or "WORD": fnv1a64 HASH`, or `with anything`.
fn source(plot: &str) -> &str {
    let (_, source) = plot.split_once("Drawn from ").expect("no source");
    source.split('<').next().unwrap()
}

/// Checks that a plot was drawn from the rows that its file has now. Returns its source.
pub(crate) fn is_drawn_from_its_rows(plot: &Path) -> String {
    let text = fs::read_to_string(plot).unwrap();
    let source = source(&text);
    let (file, _) = source.split_once(',').unwrap();
    let (_, hash) = source.split_once("fnv1a64 ").unwrap();
    let words: Vec<&str> = source.split('"').skip(1).step_by(2).collect();
    assert_eq!(words.is_empty(), source.contains("anything"), "{source}");
    let figures = fs::read_to_string(plot.with_file_name(file)).unwrap();
    let is_drawn = |line: &&str| {
        let word = line.split('\t').next().unwrap();
        words.is_empty() || words.contains(&word)
    };
    let rows: Vec<&str> = figures.lines().skip(1).filter(is_drawn).collect();
    assert!(!rows.is_empty(), "{}: no rows", plot.display());
    let rows: String = rows.iter().flat_map(|row| [row, "\n"]).collect();
    assert_eq!(
        hash,
        format!("{:016x}", fnv1a64(&rows)),
        "{}: {file} has changed since it was drawn: run 'make plots'",
        plot.display()
    );
    source.to_string()
}
