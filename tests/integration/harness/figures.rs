//! How much a test does, and what it says of it.

use std::fs::File;
use std::io::Write;

use super::kind::Kind;

/// How many times as much a test that has a long version is to do: `TEST_SCALE`, else 1.
pub fn scale() -> usize {
    let scale = std::env::var("TEST_SCALE").ok();
    scale.map_or(1, |scale| scale.parse().expect("TEST_SCALE to be a number"))
}

/// Says what a test has done, for docs/RELIABILITY.md: "31 kills, 4,211 acknowledged effects". With
/// `--nocapture` it is seen, and `TEST_FIGURES` names a file that gets it as a line: test, server
/// if there is one, scale, figure.
pub fn figure(kind: impl Into<Option<Kind>>, what: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let server = kind.into().map_or("-".into(), |kind| format!("{kind:?}"));
    let line = format!("{test}\t{server}\t{}\t{what}\n", scale());
    eprint!("{line}");
    if let Some(path) = std::env::var_os("TEST_FIGURES") {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}
