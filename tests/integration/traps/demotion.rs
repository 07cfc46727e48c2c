//! A primary that becomes a replica unblocks its waiters with an error. Two scenarios with a
//! demotion in their names have more of it.

use crate::harness::{Kind, Server};

on_servers![[valkey_8_0 Valkey8_0, valkey_9 Valkey9] waiters_with_capa_redirect_are_unblocked_at_demotion];

/// Valkey 9.1 leaves a module's blocked client blocked if it declared this capability.
fn waiters_with_capa_redirect_are_unblocked_at_demotion(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.ok("CLIENT CAPA REDIRECT");
    c.int("LOCK.ACQUIRE k a 600000");
    for timeout in [0, 600_000] {
        let mut b = server.raw();
        b.send("CLIENT CAPA REDIRECT");
        assert_eq!(b.line().unwrap(), "+OK");
        b.send(&format!("LOCK.ACQUIRE k b 600000 BLOCK {timeout}"));
        c.until_waiters("k", &["b"]);
        c.text("REPLICAOF 127.0.0.1 1");
        let error = b.line().unwrap();
        let words = ["-TRYAGAIN ", "-UNBLOCKED ", "-REDIRECT "];
        assert!(words.iter().any(|word| error.starts_with(word)), "{error}");
        c.text("REPLICAOF NO ONE");
        assert_eq!(c.holders("k"), ["a"]);
        assert!(c.waiters("k").is_empty());
    }
}
