//! What a lock costs, beside what it replaces: `make bench`, and `make bench-check` for the instructions of each command.

#![allow(unreachable_pub)] // A benchmark has no public face.

#[allow(dead_code, unused_imports)]
#[path = "../tests/integration/harness/mod.rs"]
mod harness;

mod instructions;
mod load;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` by itself.
    let mut names = words.iter().filter(|word| !word.starts_with("--"));
    match names.next().map(String::as_str) {
        Some("instructions") => instructions::check(),
        other => panic!("no benchmark is called {other:?}"),
    }
}
