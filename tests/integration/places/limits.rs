//! Places count against the limits of waiters, absent ones too.

use super::fixture::{figure, leaves_place};
use crate::harness::{Kind, Reply, Server};

on_every_server![
    a_grace_beyond_max_keep_is_an_error,
    long_names_of_several_keys_are_bounded_by_bytes,
];

/// Sets a limit, by CONFIG where modules have it, else by the load.
fn start_with(kind: Kind, limits: &[(&str, &str)]) -> Server {
    let server = Server::start(kind);
    let mut c = server.client();
    for (name, n) in limits {
        let set = format!("CONFIG SET lock.{name} {n}");
        c.ok(&set);
    }
    server
}

fn a_grace_beyond_max_keep_is_an_error(kind: Kind) {
    let server = start_with(kind, &[("max-keep", "5000")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for line in [
        "LOCK.ACQUIRE k b 60000 KEEP 5001",
        "RWLOCK.RLOCK k b 60000 BLOCK 0 KEEP 3600000",
        "LOCK.MACQUIRE 2 k l b 60000 NOTIFY 0 c KEEP 5001",
        "LOCK.ACQUIRE free b 60000 KEEP 3600001",
    ] {
        let error = c.error(line);
        assert!(
            error.starts_with("ERR ") && error.contains("lock.max-keep"),
            "{line}: {error}"
        );
    }
    assert_eq!(c.call("LOCK.INFO free"), Reply::Nil);
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 5000");
}

fn long_names_of_several_keys_are_bounded_by_bytes(kind: Kind) {
    let server = start_with(kind, &[("max-waiting-bytes", "1000000")]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let name = |n: usize| format!("{n}{}", "x".repeat(50_000));
    let mut made = 0;
    let error = loop {
        let keys: Vec<_> = (0..4).map(|key| name(made * 4 + key)).collect();
        let line = format!(
            "LOCK.MACQUIRE 5 k {} t{made} 60000 KEEP 60000",
            keys.join(" ")
        );
        match c.call(&line) {
            Reply::Nil => made += 1,
            Reply::Error(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        error.starts_with("QUEUEFULL ") && error.contains("(max-waiting-bytes)"),
        "{error}"
    );
    assert_eq!(made, 4, "of 200,000 bytes");
    let bytes = figure(&mut c, "waiting_bytes");
    assert!((800_000..900_000).contains(&bytes), "{bytes}");
    // A short request has room. A place goes on.
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    leaves_place(&mut c, "LOCK.ACQUIRE k b 60000 KEEP 60000");
    assert_eq!(c.int("LOCK.CANCEL k"), 5);
    assert_eq!(figure(&mut c, "waiting_bytes"), 0);
}
