//! What the README says is true: every console example is run by a real redis-cli.

use crate::harness::{project_file, run_examples, Kind, Server};

on_every_server![the_examples_in_the_readme_print_what_they_say,];

fn the_examples_in_the_readme_print_what_they_say(kind: Kind) {
    let server = Server::start(kind);
    let run = run_examples(&server, &project_file("README.md"));
    assert!(run >= 12, "the README has lost its examples");
}
