//! The README and the concepts are right: every console example is run by a real redis-cli.

use crate::harness::{project_file, run_examples, Kind, Server};

on_every_server![
    the_examples_of_the_readme_print_the_documented_replies,
    the_examples_of_the_concepts_print_the_documented_replies,
];

fn the_examples_of_the_readme_print_the_documented_replies(kind: Kind) {
    let server = Server::start(kind);
    let run = run_examples(&server, &project_file("README.md"));
    assert!(run >= 8, "the README has lost its examples");
}

fn the_examples_of_the_concepts_print_the_documented_replies(kind: Kind) {
    let server = Server::start(kind);
    let run = run_examples(&server, &project_file("docs/CONCEPTS.md"));
    assert!(run >= 5, "the concepts have lost their example");
}
