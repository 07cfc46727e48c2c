//! The scale of a test, and the report of what it did.

use std::fs::File;
use std::io::Write;
use std::str::FromStr;

use super::kind::Kind;

/// The factor for a test that has a long version: `TEST_SCALE`, or 1.
pub fn scale() -> usize {
    setting("TEST_SCALE").unwrap_or(1)
}

/// A setting of a test from the environment, if it is there and not empty.
pub fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let value = text.parse().ok();
    Some(value.unwrap_or_else(|| panic!("{name} is {text}")))
}

/// Reports what a test did, for tests/README.md: "31 kills, 4,211 acknowledged effects".
/// `--nocapture` shows it. If `TEST_FIGURES` names a file, it gets a line: test, server if there is
/// one, scale, figure.
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
