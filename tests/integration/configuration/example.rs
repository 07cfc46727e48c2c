//! redis.conf.example as it stands.

use super::{commented, example};
use crate::harness::{project_file, Kind, Reply, Server};

on_every_server![
    every_setting_of_the_example_is_accepted,
    the_example_shows_the_defaults_of_the_module,
];

fn every_setting_of_the_example_is_accepted(kind: Kind) {
    let config = example();
    let server = Server::start_with_config(kind, &config);
    let mut c = server.client();
    assert!(c.int("LOCK.ACQUIRE k me 10000") > 0);
    let mut settings = config.lines().filter_map(|line| line.split_once(' '));
    let mut seen = 0;
    while let Some((name, value)) =
        settings.find(|(name, _)| !name.starts_with('#') && *name != "loadmodule")
    {
        assert_eq!(c.setting(name), value.trim_matches('"'), "{name}");
        seen += 1;
    }
    assert!(seen >= 8, "only {seen} settings");
}

/// The values in the example are the defaults, and the bounds in its comments are right.
fn the_example_shows_the_defaults_of_the_module(kind: Kind) {
    let text = project_file("redis.conf.example");
    assert!(text.contains("integers from 0 (nobody\n# waits) to 1000000, and 10000 by default"));
    let server = Server::start(kind);
    let mut c = server.client();
    let config = [vec![example()], commented("lock.")].concat().join("\n");
    let with_example = Server::start_with_config(kind, &config);
    let mut lines = text.lines();
    let load = lines.find(|line| line.starts_with("loadmodule "));
    let arguments = load.expect("a line that loads the module");
    for line in commented("lock.") {
        let (name, value) = line.split_once(' ').unwrap();
        let argument = line.replace("lock.", " ");
        assert!(arguments.contains(&argument), "{arguments}");
        assert_eq!(c.setting(name), value);
        assert_eq!(with_example.client().setting(name), value);
        let values = match value {
            "yes" => [("no", true), ("maybe", false), ("yes", true), ("1", false)],
            "off" => [
                ("restart", true),
                ("maybe", false),
                ("off", true),
                ("0", false),
            ],
            _ => {
                let [least, below, most, above] = bounds(name);
                [(least, true), (below, false), (most, true), (above, false)]
            }
        };
        for (value, fits) in values {
            let reply = c.call(&format!("CONFIG SET {name} {value}"));
            assert_eq!(reply == Reply::Simple("OK".into()), fits, "{value}");
        }
        let last = values.iter().rfind(|(_, fits)| *fits);
        assert_eq!(Some(&*c.setting(name)), last.map(|(value, _)| *value));
    }
}

/// The least value of a limit and the one below it, the largest one and the one above it.
fn bounds(name: &str) -> [&'static str; 4] {
    match name {
        "lock.max-waiters-share" => ["1", "0", "100", "101"],
        "lock.max-keep" | "lock.max-ttl" | "lock.guard-slack" => ["0", "-1", "3600000", "3600001"],
        "lock.max-absent" => ["0", "-1", "10000", "10001"],
        "lock.guard-members" => ["1", "0", "99", "100"],
        "lock.guard-fresh" => ["500", "499", "60000", "60001"],
        "lock.max-waiting-bytes" => ["0", "-1", "1099511627776", "1099511627777"],
        _ => ["0", "-1", "1000000", "1000001"],
    }
}
