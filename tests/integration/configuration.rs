//! The configuration of the module: redis.conf.example as it is, and the changes that an operator
//! makes to it.

mod arguments;
mod example;
mod in_place;
mod rewrite;
mod tls;
mod users;

use crate::harness::{module, project_file};

/// The path of the module in the example.
const INSTALLED: &str = "/usr/local/lib/redis/modules/libredis_lock.so";

/// redis.conf.example with the path of the module replaced, because it is not installed here.
fn example() -> String {
    let example = project_file("redis.conf.example");
    assert!(example.contains(INSTALLED));
    example.replace(INSTALLED, module().to_str().unwrap())
}

/// The settings that the example comments out, one per line: those right behind the `#`.
fn commented_out() -> Vec<String> {
    let example = example();
    let lines = example.lines().filter_map(|line| line.strip_prefix('#'));
    let settings = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    settings.map(String::from).collect()
}

/// The commented settings whose lines begin like this. There must be at least one.
#[track_caller]
fn commented(start: &str) -> Vec<String> {
    let mut lines = commented_out();
    lines.retain(|line| line.starts_with(start));
    assert!(!lines.is_empty(), "the example has no {start}");
    lines
}
