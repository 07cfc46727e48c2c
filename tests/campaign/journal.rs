//! The record of a round: lines of JSON, each written when it happens.
//!
//! ```text
//! {"at":1500210,"who":"c3","to":40123,"what":"send","text":"LOCK.ACQUIRE k1 c3-7 900 BLOCK 400"}
//! {"at":1520734,"who":"c3","to":40123,"what":"reply","text":"1763916000000001"}
//! {"at":1600000,"who":"driver","to":40124,"what":"promoted","text":""}
//! ```
//!
//! `at` is in microseconds, by one monotonic clock. `to` is the port of a server. A client sends one
//! request after the other. The text of a reply is its number, `nil`, `lost` for a broken connection,
//! or the error.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

pub struct Journal {
    file: File,
    pub start: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub at_us: u64,
    pub who: String,
    pub to: u16,
    pub what: String,
    pub text: String,
}

impl Journal {
    pub fn create(path: &Path) -> Self {
        Self {
            file: File::create(path).unwrap(),
            start: Instant::now(),
        }
    }

    /// Now, by the clock of the journal.
    pub fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    pub fn note(&self, who: &str, to: u16, what: &str, text: &str) {
        self.note_at(self.now_us(), who, to, what, text);
    }

    pub fn note_at(&self, at_us: u64, who: &str, to: u16, what: &str, text: &str) {
        let line = format!(
            "{{\"at\":{at_us},\"who\":\"{who}\",\"to\":{to},\"what\":\"{what}\",\"text\":{text:?}}}\n"
        );
        (&self.file).write_all(line.as_bytes()).unwrap();
    }
}

/// The lines, in the order of their times.
pub fn read(text: &str) -> Vec<Line> {
    let line = |line| parse(line).unwrap_or_else(|| panic!("no line of a journal: {line}"));
    let mut lines: Vec<_> = text.lines().map(line).collect();
    lines.sort_by_key(|line| line.at_us);
    lines
}

fn parse(line: &str) -> Option<Line> {
    let rest = line.strip_prefix("{\"at\":")?;
    let (at_us, rest) = rest.split_once(",\"who\":\"")?;
    let (who, rest) = rest.split_once("\",\"to\":")?;
    let (to, rest) = rest.split_once(",\"what\":\"")?;
    let (what, rest) = rest.split_once("\",\"text\":\"")?;
    let text = rest.strip_suffix("\"}")?;
    Some(Line {
        at_us: at_us.parse().ok()?,
        who: who.into(),
        to: to.parse().ok()?,
        what: what.into(),
        text: text.replace("\\\"", "\""),
    })
}
