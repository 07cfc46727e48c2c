//! CONFIG REWRITE keeps the configuration of the module.

use super::in_place::{assert_goes_out, setting};
use crate::harness::{module, Client, Kind, Reply, Server};

on_every_server![
    load_arguments_survive_config_rewrite,
    an_include_and_config_rewrite_would_load_the_module_twice,
    module_loadex_settings_survive_config_rewrite,
];

/// The effects can be read in the file at once.
const APPENDS: &str = "appendonly yes\nappendfsync no\n";

/// Whether waiting is refused. This shows `max-waiters 0` on every server.
fn nobody_may_wait(c: &mut Client) -> bool {
    c.call("FLUSHALL");
    c.int("LOCK.ACQUIRE k a 60000");
    match c.call("LOCK.ACQUIRE k b 60000 BLOCK 1") {
        Reply::Error(error) => error.contains("(max-waiters)"),
        _ => false,
    }
}

/// Whether nobody may wait, so many may wait for one lock, and effects are so replicated.
#[track_caller]
fn check(server: &Server, per_key: i64, in_place: bool) {
    let mut c = server.client();
    assert!(nobody_may_wait(&mut c));
    assert_goes_out(server, in_place);
    assert_eq!(limit(&mut c, "max-waiters-per-key"), per_key);
}

fn load_arguments_survive_config_rewrite(kind: Kind) {
    let line = format!(
        "loadmodule {} max-waiters-per-key 5 max-waiters 0 replicate-in-place no",
        module().display()
    );
    let config = format!("# A word of the operator's.\n{APPENDS}{line}\n");
    let mut server = Server::start_with_config(kind, &config);
    for _ in 0..2 {
        check(&server, 5, false);
        rewrite(&server);
        let config = server.config();
        let ours = config
            .lines()
            .filter(|found| found.starts_with("loadmodule"));
        assert_eq!(ours.collect::<Vec<_>>(), [&line], "{config}");
        server.kill();
        server.start_again();
    }
    check(&server, 5, false);
    // The configuration file overrides the load argument.
    let set = "CONFIG SET lock.replicate-in-place yes";
    assert_eq!(server.client().text(set), "OK");
    rewrite(&server);
    server.kill();
    server.start_again();
    assert_eq!(setting(&mut server.client()), "yes");
    check(&server, 5, true);
}

fn module_loadex_settings_survive_config_rewrite(kind: Kind) {
    for (words, per_key, in_place) in [
        (
            "CONFIG lock.max-waiters 0 CONFIG lock.replicate-in-place no \
             ARGS max-waiters-per-key 4",
            4,
            false,
        ),
        ("ARGS max-waiters 0 replicate-in-place no", 10_000, false),
        // CONFIG overrides the load argument.
        (
            "CONFIG lock.max-waiters 0 CONFIG lock.replicate-in-place yes \
             ARGS replicate-in-place no max-waiters 9",
            10_000,
            true,
        ),
    ] {
        let config = format!("enable-module-command yes\n{APPENDS}");
        let mut server = Server::start_with_config(kind, &config);
        let load = format!("MODULE LOADEX {} {words}", module().display());
        assert_eq!(server.client().text(&load), "OK", "{words}");
        check(&server, per_key, in_place);
        rewrite(&server);
        server.kill();
        server.start_again();
        check(&server, per_key, in_place);
        // A default is left out of the file, and applies again.
        let set = "CONFIG SET lock.max-waiters 3";
        assert_eq!(server.client().text(set), "OK");
        rewrite(&server);
        server.kill();
        server.start_again();
        assert_eq!(limit(&mut server.client(), "max-waiters"), 3);
    }
}

/// docs/INSTALL.md warns of this: Sentinel runs CONFIG REWRITE at a failover.
fn an_include_and_config_rewrite_would_load_the_module_twice(kind: Kind) {
    let name = format!("redis-lock-{}-{kind:?}.conf", std::process::id());
    let snippet = std::env::temp_dir().join(name);
    std::fs::write(&snippet, format!("loadmodule {}\n", module().display())).unwrap();
    let config = format!("include {}\n", snippet.display());
    let mut server = Server::start_with_config(kind, &config);
    rewrite(&server);
    let config = server.config();
    server.kill();
    assert!(config.contains("\nloadmodule "), "{config}");
    let log = Server::log_of_failed_start_with_config(kind, &config);
    assert!(log.contains("locks are ready"), "{log}");
    assert!(log.contains("Can't load module from"), "{log}");
    std::fs::remove_file(snippet).unwrap();
}

fn rewrite(server: &Server) {
    assert_eq!(server.client().text("CONFIG REWRITE"), "OK");
}

fn limit(c: &mut Client, name: &str) -> i64 {
    c.setting(&format!("lock.{name}")).parse().unwrap()
}
