//! CONFIG REWRITE keeps the configuration of the module.

use crate::harness::{module, Client, Kind, Reply, Server};

on_every_server![
    load_arguments_survive_config_rewrite,
    module_loadex_settings_survive_config_rewrite,
    an_include_and_config_rewrite_would_load_the_module_twice,
];

/// Whether waiting is refused. This shows `max-waiters 0` on every server.
fn nobody_may_wait(c: &mut Client) -> bool {
    c.call("FLUSHALL");
    c.int("LOCK.ACQUIRE k a 60000");
    match c.call("LOCK.ACQUIRE k b 60000 BLOCK 1") {
        Reply::Error(error) => error.contains("(max-waiters)"),
        _ => false,
    }
}

fn load_arguments_survive_config_rewrite(kind: Kind) {
    let line = format!(
        "loadmodule {} max-waiters-per-key 5 max-waiters 0",
        module().display()
    );
    let mut server =
        Server::start_with_config(kind, &format!("# A word of the operator's.\n{line}\n"));
    for _ in 0..2 {
        let mut c = server.client();
        assert!(nobody_may_wait(&mut c));
        if kind.is_7_0_or_later() {
            assert_eq!(limit(&mut c, "max-waiters-per-key"), 5);
        }
        assert_eq!(c.text("CONFIG REWRITE"), "OK");
        let config = server.config();
        let ours = config
            .lines()
            .filter(|found| found.starts_with("loadmodule"));
        assert_eq!(ours.collect::<Vec<_>>(), [&line], "{config}");
        server.kill();
        server.start_again();
    }
    assert!(nobody_may_wait(&mut server.client()));
}

fn module_loadex_settings_survive_config_rewrite(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return; // MODULE LOADEX came with 7.0.
    }
    let mut server = Server::start_with_config(kind, "enable-module-command yes\n");
    let mut c = server.client();
    let load = format!(
        "MODULE LOADEX {} CONFIG lock.max-waiters 0 ARGS max-waiters-per-key 4",
        module().display()
    );
    assert_eq!(c.text(&load), "OK");
    assert_eq!(c.text("CONFIG REWRITE"), "OK");
    server.kill();
    server.start_again();
    let mut c = server.client();
    assert!(nobody_may_wait(&mut c));
    assert_eq!(limit(&mut c, "max-waiters-per-key"), 4);
    // A default is left out of the file, and applies again.
    assert_eq!(c.text("CONFIG SET lock.max-waiters 3"), "OK");
    assert_eq!(c.text("CONFIG REWRITE"), "OK");
    server.kill();
    server.start_again();
    assert_eq!(limit(&mut server.client(), "max-waiters"), 3);
}

/// docs/INSTALL.md warns of this: Sentinel runs CONFIG REWRITE at a failover.
fn an_include_and_config_rewrite_would_load_the_module_twice(kind: Kind) {
    let name = format!("redis-lock-{}-{kind:?}.conf", std::process::id());
    let snippet = std::env::temp_dir().join(name);
    std::fs::write(&snippet, format!("loadmodule {}\n", module().display())).unwrap();
    let config = format!("include {}\n", snippet.display());
    let mut server = Server::start_with_config(kind, &config);
    assert_eq!(server.client().text("CONFIG REWRITE"), "OK");
    let config = server.config();
    server.kill();
    if kind.is_7_0_or_later() {
        assert!(config.contains("\nloadmodule "), "{config}");
        let log = Server::log_of_failed_start_with_config(kind, &config);
        assert!(log.contains("locks are ready"), "{log}");
        assert!(log.contains("Can't load module from"), "{log}");
    } else {
        assert!(!config.contains("\nloadmodule "), "{config}");
        server.start_again();
    }
    std::fs::remove_file(snippet).unwrap();
}

fn limit(c: &mut Client, name: &str) -> i64 {
    let name = format!("lock.{name}");
    let value = c.call(&format!("CONFIG GET {name}")).field(&name);
    String::from_utf8_lossy(value.as_bytes()).parse().unwrap()
}
