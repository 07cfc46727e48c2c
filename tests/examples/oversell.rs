//! The overselling demonstration with small numbers. It finishes, and oversells exactly where it
//! should.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::kind;
use crate::harness::Server;

/// Built by cargo, which does nothing if it is up to date.
fn program() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--example", "oversell"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "no oversell");
    let this = std::env::current_exe().unwrap();
    let debug = this.parent().and_then(Path::parent).unwrap();
    debug.join("examples/oversell")
}

#[test]
fn the_story_oversells_without_lock_and_without_fence_only() {
    let program = program();
    let server = Server::start(kind());
    let folder = server.dir().join("docs");
    fs::create_dir(&folder).unwrap();
    let output = Command::new(program)
        .args(["127.0.0.1", &server.port.to_string()])
        .args(["--processes", "8", "--stock", "24", "--into"])
        .arg(&folder)
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");

    let table = String::from_utf8(output.stdout).unwrap();
    let rows: BTreeMap<&str, Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ("))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (&cells[1][..3], cells)
        })
        .collect();
    let ways: Vec<&str> = rows.keys().copied().collect();
    let expected = ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)", "(g)", "(h)"];
    assert_eq!(ways, expected, "{table}");
    for (way, cells) in &rows {
        let number = |column: usize| cells[column].parse::<u32>().unwrap();
        let (sold, oversold, stalled) = (number(2), number(3), number(8));
        assert_eq!(sold, 24 + oversold, "{table}");
        assert_eq!(oversold > 0, *way == "(a)", "{table}");
        // An expired lock does not stop its late owner from writing. Only a fence, a guard or a
        // transaction does.
        let oversells = ["(a)", "(c)", "(d)", "(e)"].contains(way);
        assert_eq!(stalled > 0, oversells, "{table}");
    }
    let page = fs::read_to_string(folder.join("oversell.md")).unwrap();
    assert!(page.contains(&table), "{page}");
    // No key of the shop's lock is left.
    assert_eq!(server.client().int("EXISTS oversell:lock"), 0);
}
