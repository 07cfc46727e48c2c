//! Bindings end with their holds, or when these leave their keys.

use super::{bound, holder};
use crate::harness::{Kind, Server};

on_every_server![a_hold_that_ends_otherwise_is_forgotten];

fn a_hold_that_ends_otherwise_is_forgotten(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for end in [
        "DEL k",
        "UNLINK k",
        "SET k text",
        "RENAME k elsewhere",
        "MOVE k 1",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "PEXPIRE k -1",
    ] {
        let held = holder(&server, "LOCK.ACQUIRE k me 600000 LINGER 0");
        assert_eq!(bound(&mut c), 1);
        c.call(end);
        assert_eq!(bound(&mut c), 0, "{end}");
        c.call("FLUSHALL");
        // Whatever is under the key now belongs to another one.
        c.int("LOCK.ACQUIRE k me 600000");
        drop(held);
        c.until_info("connected_clients", "1");
        c.int("LOCK.RENEW k other 1");
        assert_eq!(c.holders("k"), ["me"], "{end}");
        c.int("LOCK.RELEASE k me");
    }
}
