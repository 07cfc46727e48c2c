//! What the README and redis.conf.example say is true: every console example is run by a real redis-cli.

use crate::harness::{module, project_file, run_examples, Kind, Server};

on_every_server![
    the_examples_in_the_readme_print_what_they_say,
    the_example_configuration_starts_a_server,
];

fn the_examples_in_the_readme_print_what_they_say(kind: Kind) {
    let server = Server::start(kind);
    let run = run_examples(&server, &project_file("README.md"));
    assert!(run >= 20, "the README has lost its examples");
}

fn the_example_configuration_starts_a_server(kind: Kind) {
    let example = project_file("redis.conf.example");
    let installed = "/usr/local/lib/redis/modules/libredis_lock.so";
    assert!(example.contains(installed));
    // As it stands, but for the place of the module, which is not installed here.
    let config = example.replace(installed, module().to_str().unwrap());
    let server = Server::start_with_config(kind, &config);
    let mut c = server.client();
    assert!(c.int("LOCK.ACQUIRE k me 10000") > 0);
    assert_eq!(c.call("CONFIG GET appendfsync").items()[1], "always".into());
}
