//! What the README and redis.conf.example say is true: every console example is run by a real redis-cli.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::{module, redis_cli, Kind, Server};

on_every_server![
    the_examples_in_the_readme_print_what_they_say,
    the_example_configuration_starts_a_server,
];

const PROMPT: &str = "127.0.0.1:6379> ";

fn project_file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn the_examples_in_the_readme_print_what_they_say(kind: Kind) {
    let server = Server::start(kind);
    let readme = project_file("README.md");
    let blocks: Vec<&str> = readme
        .split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 5, "the README has lost its examples");
    for block in blocks {
        server.client().call("FLUSHALL");
        for example in block.split(PROMPT).skip(1) {
            let (command, expected) = example.split_once('\n').unwrap();
            let found = cli(&server, command);
            assert!(
                alike(&found, expected),
                "{command}\nsays {expected}but gives {found}"
            );
        }
    }
}

/// What redis-cli prints on a terminal.
fn cli(server: &Server, line: &str) -> String {
    let output = Command::new(redis_cli())
        .args(["--no-raw", "-p", &server.port.to_string()])
        .args(line.split_whitespace())
        .output()
        .expect("to run redis-cli");
    String::from_utf8(output.stdout).unwrap()
}

/// Equal, but for fences, instants and made tokens, which need only be of their kind, and for a second of a ttl.
fn alike(found: &str, expected: &str) -> bool {
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(String::from).collect() };
    let (found, expected) = (words(found), words(expected));
    found.len() == expected.len()
        && found.iter().zip(&expected).all(|(found, expected)| {
            let numbers = found.parse::<u64>().ok().zip(expected.parse::<u64>().ok());
            match numbers {
                Some((found, expected)) if expected >= 1_000_000_000_000 => {
                    found.ilog10() == expected.ilog10()
                }
                Some((found, expected)) if expected >= 1_000 => {
                    found <= expected && expected - found < 1_000
                }
                _ => found == expected || (is_uuid(found) && is_uuid(expected)),
            }
        })
}

fn is_uuid(word: &str) -> bool {
    let bare = word.trim_matches('"');
    bare.len() == 36
        && bare.chars().enumerate().all(|(n, c)| match n {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
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
