//! The limits of waiters: load arguments, CONFIG and MODULE LOADEX.

use crate::harness::{module, wait_for, Client, Kind, Reply, Server};

on_every_server![
    bad_load_arguments_are_named_in_the_log,
    config_reads_and_sets_the_limits,
    a_set_limit_outlives_a_restart_by_config_rewrite,
    module_loadex_sets_the_limits,
];

const LIMITS: [&str; 2] = ["max-waiters-per-key", "max-waiters"];

fn bad_load_arguments_are_named_in_the_log(kind: Kind) {
    let module = module();
    for bad in [
        "max-waiters",
        "max-waiters many",
        "max-waiters -1",
        "max-waiters 1000001",
        "max-waiters 99999999999999999999",
        "max-waiters 1 max-waiters 1",
        "maxwaiters 1",
        "7",
    ] {
        let mut options = vec!["--loadmodule", module.to_str().unwrap()];
        options.extend(bad.split(' '));
        let log = Server::log_of_failed_start(kind, &options);
        let expected = "bad arguments: expected [max-waiters-per-key N] [max-waiters N] [replicate-in-place yes|no] \
             [deadlock-detection yes|no] with N from 0 to 1000000, [max-absent N] [max-keep ms] \
             [max-waiters-share percent] [max-waiting-bytes bytes] [max-ttl ms] \
             [guard off|restart|failover|quorum] [guard-slack ms] \
             [guard-members N] [guard-fresh ms] [guard-drift N]";
        assert!(log.contains(expected), "{bad}: {log}");
    }
}

fn config_reads_and_sets_the_limits(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "7"]);
    let mut c = server.client();
    if !kind.is_7_0_or_later() {
        assert_eq!(
            limits(&mut c),
            [None, None],
            "6.2 has no CONFIG for modules"
        );
        assert!(!c.error("CONFIG SET lock.max-waiters 5").is_empty());
        return;
    }
    assert_eq!(limits(&mut c), [Some(10_000), Some(7)]);
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    set(&mut c, "max-waiters-per-key", 2);
    let error = c.error("LOCK.ACQUIRE k e 60000 BLOCK 0");
    assert!(error.contains("(max-waiters-per-key)"), "{error}");
    set(&mut c, "max-waiters-per-key", 3);
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    set(&mut c, "max-waiters", 1);
    assert_eq!(c.waiters("k"), ["b", "d", "e"], "nobody is sent away");
    assert_eq!(limits(&mut c), [Some(3), Some(1)]);
    for bad in ["-1", "1000001", "many", "1.5", "99999999999999999999"] {
        for name in LIMITS {
            assert!(!c.error(&format!("CONFIG SET lock.{name} {bad}")).is_empty());
        }
    }
    assert!(!c.error("CONFIG SET lock.unheard-of 1").is_empty());
    assert_eq!(limits(&mut c), [Some(3), Some(1)]);
    c.int("LOCK.RELEASE k a");
    b.fence();
    let error = c.error("LOCK.ACQUIRE k f 60000 BLOCK 0");
    assert!(error.contains("(max-waiters)"), "{error}");
    assert!(d.is_pending() && e.is_pending());
}

fn a_set_limit_outlives_a_restart_by_config_rewrite(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return; // No CONFIG for modules.
    }
    let config = format!(
        "loadmodule {} max-waiters-per-key 5\nlock.max-waiters 9\n",
        module().display()
    );
    let mut server = Server::start_with_config(kind, &config);
    let mut c = server.client();
    assert_eq!(limits(&mut c), [Some(5), Some(9)]);
    set(&mut c, "max-waiters-per-key", 6);
    set(&mut c, "max-waiters", 8);
    assert_eq!(c.text("CONFIG REWRITE"), "OK");
    server.kill();
    server.start_again();
    assert_eq!(limits(&mut server.client()), [Some(6), Some(8)]);
}

fn module_loadex_sets_the_limits(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return; // MODULE LOADEX came with 7.0.
    }
    let server = Server::start_without_module(kind, &["--enable-module-command", "yes"]);
    let mut c = server.client();
    let load = format!("MODULE LOADEX {}", module().display());
    for bad in [
        "CONFIG lock.max-waiters -5",
        "CONFIG lock.max-waiters-per-key 1000001",
        "ARGS max-waiters many",
        "CONFIG lock.max-waiters 5 ARGS max-waiters 5 max-waiters 5",
    ] {
        assert!(!c.error(&format!("{load} {bad}")).is_empty(), "{bad}");
        assert!(!c.error("LOCK.INFO k").is_empty(), "{bad}");
    }
    let loaded = c.text(&format!(
        "{load} CONFIG lock.max-waiters 1 ARGS max-waiters-per-key 4"
    ));
    assert_eq!(loaded, "OK");
    assert_eq!(limits(&mut c), [Some(4), Some(1)]);
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    assert!(c
        .error("LOCK.ACQUIRE k d 60000 BLOCK 0")
        .contains("(max-waiters)"));
    c.int("LOCK.RELEASE k a");
    b.fence();
    wait_for("the queue to be empty", || {
        c.waiters("k").is_empty().then_some(())
    });
}

fn set(c: &mut Client, name: &str, value: i64) {
    assert_eq!(c.text(&format!("CONFIG SET lock.{name} {value}")), "OK");
}

fn limits(c: &mut Client) -> [Option<i64>; 2] {
    LIMITS.map(|name| match c.call(&format!("CONFIG GET lock.{name}")) {
        Reply::Array(pair) => {
            let value = pair.get(1)?.as_bytes().to_vec();
            String::from_utf8(value).unwrap().parse().ok()
        }
        other => panic!("{other:?}"),
    })
}
