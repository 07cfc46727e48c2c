//! Scenarios with a fault, which is found.

use std::path::Path;

use super::format::Scenario;
use super::play;

const HEAD: &str = "# Why: to be refused\n# servers: memory\n";

/// What is wrong with these lines.
fn fault_of(lines: &str) -> String {
    let scenario = Scenario::parse(Path::new("x.txt"), &format!("{HEAD}{lines}"));
    let played = scenario.and_then(|scenario| play(&scenario, 0));
    played.expect_err("a fault")
}

/// Each has one fault, and the error names its line.
#[test]
fn a_scenario_that_is_wrong_fails() {
    let taken = "a: LOCK.ACQUIRE k t 60000 -> fence 1\n";
    let waits = "b: LOCK.ACQUIRE k u 60000 BLOCK 0 -> waits\n";
    for (lines, fault) in [
        (
            "a: LOCK.RELEASE k t -> 1",
            "x.txt:3: expected Int(1), got Int(0)",
        ),
        (
            "a: LOCK.ACQUIRE k t 60000 -> null",
            "x.txt:3: expected Null, got Int(",
        ),
        (
            "a: LOCK.ACQUIRE k t 60000 -> fence 1\na: LOCK.CHECK k t -> fence 2",
            "x.txt:4: expected Fence(2)",
        ),
        (
            "{taken}{waits}a: LOCK.RELEASE k t -> 1",
            "x.txt: at the end: b has got Int(",
        ),
        (
            "{taken}{waits}a: LOCK.RELEASE k t -> 1\na: PING -> PONG",
            "x.txt:6: before this line: b has got Int(",
        ),
        (
            "{taken}{waits}b: gets fence 2",
            "x.txt:5: b has got nothing",
        ),
        (
            "{taken}b: LOCK.ACQUIRE k u 60000 -> waits",
            "x.txt:4: expected Waits, got Null",
        ),
        (
            "{taken}holders of k: u",
            "x.txt:4: expected [\"u\"], got [\"t\"]",
        ),
        (
            "{taken}counted: nothing",
            "x.txt:4: expected {}, got {\"acquired\": 1}",
        ),
        (
            "a: LOCK.ACQUIRE k t 0 -> ERR no",
            "x.txt:3: expected Error(\"ERR no\"), got Error(\"ERR ttl must",
        ),
        ("a: LOCK.ACQUIRE k t 60000", "x.txt:3: no `-> answer`"),
        (
            "a: LOCK.ACQUIRE k t 60000 -> granted",
            "x.txt:3: `granted` is no answer",
        ),
        ("after a while", "x.txt:3: the time must be `N ms`"),
        (
            "a: SORT k -> OK",
            "x.txt:3: the server in memory cannot do this",
        ),
        (
            "channel c: timeout k t",
            "x.txt:3: channel c has heard nothing",
        ),
    ] {
        let lines = lines.replace("{taken}", taken).replace("{waits}", waits);
        let found = fault_of(&lines);
        assert!(found.starts_with(fault), "{lines}\n{found}");
    }
}
