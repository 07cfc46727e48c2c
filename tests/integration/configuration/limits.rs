//! The limits of waiters at run time, by CONFIG.

use crate::harness::{Client, Kind, Server};

on_every_server![config_sets_the_limits_at_run_time];

fn config_sets_the_limits_at_run_time(kind: Kind) {
    let server = Server::start_with(kind, &["max-waiters", "7"]);
    let mut c = server.client();
    if !kind.is_7_0_or_later() {
        assert_eq!(
            c.call("CONFIG GET lock.*").items(),
            [],
            "6.2 has no CONFIG for modules"
        );
        assert!(!c.error("CONFIG SET lock.max-waiters 5").is_empty());
        return;
    }
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
    c.int("LOCK.RELEASE k a");
    b.fence();
    let error = c.error("LOCK.ACQUIRE k f 60000 BLOCK 0");
    assert!(error.contains("(max-waiters)"), "{error}");
    assert!(d.is_pending() && e.is_pending());
}

fn set(c: &mut Client, name: &str, value: i64) {
    assert_eq!(c.text(&format!("CONFIG SET lock.{name} {value}")), "OK");
    let name = format!("lock.{name}");
    let found = c.call(&format!("CONFIG GET {name}")).field(&name);
    assert_eq!(found, value.to_string().as_str().into());
}
