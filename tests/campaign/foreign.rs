//! Porcupine, a judge of other people, decides whether the resources of a round are linearizable. It
//! is a program of its own (`tests/judge`), which `make campaign` builds where there is a Go.

use std::path::Path;
use std::process::Command;

use super::requests::Finding;

/// What it finds: resources that are broken, and those about which it cannot decide in time.
pub fn judge(journal: &Path) -> Vec<Finding> {
    let program = std::env::var("CAMPAIGN_JUDGE").unwrap_or_default();
    if program.is_empty() {
        return Vec::new();
    }
    // It draws what is broken.
    let folder = journal.parent().expect("a folder");
    let mut command = Command::new(&program);
    let output = command.arg("-into").arg(folder).arg(journal).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let code = output.status.code();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(code, Some(0 | 1 | 3)), "{code:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().filter_map(|line| {
        let fields: Vec<_> = line.split('\t').collect();
        let [_, resource, many, unknown, verdict, _] = fields[..] else {
            panic!("{program} has said {line}");
        };
        (verdict != "fine").then(|| Finding {
            judge: "porcupine",
            from_us: 0,
            until_us: u64::MAX,
            text: format!("{resource}, {many} increments, {unknown} of unknown end: {verdict}"),
        })
    });
    found.collect()
}
