//! Calls that another module makes for nobody: no client has rights there.

use crate::harness::{built_module, module, Kind, Reply, Server};

on_every_server![calls_without_a_user_end_no_server];

fn calls_without_a_user_end_no_server(kind: Kind) {
    let library = built_module("tests/integration/security/caller.c", kind, "caller");
    let [first, second] = [&library, &module()].map(|path| path.to_str().unwrap().to_string());
    // The user is asked for as soon as anybody waits.
    let options = [
        "--loadmodule",
        &first,
        "--loadmodule",
        &second,
        "max-waiters",
        "10",
    ];
    let server = Server::start_without_module(kind, &options);
    std::fs::remove_file(&library).unwrap();
    let mut c = server.client();
    c.int("LOCK.ACQUIRE held me 60000");
    let script = "return redis.call(unpack(ARGV))";
    let keeps = ["LOCK.ACQUIRE", "held", "you", "1000", "KEEP", "60000"];
    c.send(&[&["caller.call", "EVAL", script, "0"], &keeps[..]].concat());
    assert_eq!(c.info("lock_waiters_absent"), "1");
    // The listener calls within a script, within LOCK.EXEC, and alone.
    c.send(&["EVAL", script, "0", "SET", "run", "1"]);
    c.call("LOCK.EXEC held me SET run 1");
    // The rights of LOCK.EXEC's client are still known afterwards.
    c.call("ACL SETUSER limited on nopass ~* &* +@all -set");
    c.call("AUTH limited any");
    c.refused("LOCK.EXEC held me SET run 1", "NOPERM ");
    assert!(matches!(
        c.call("LOCK.EXEC held me GET run"),
        Reply::Bulk(_)
    ));
    c.call("AUTH default any");
    c.call("SET run 1");
    assert_eq!(c.call("PING"), Reply::Simple("PONG".into()));
}
