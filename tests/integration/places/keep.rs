//! KEEP: a request that ends without a grant leaves its place in the queue.

use super::fixture::until_absent;
use crate::harness::{Kind, Reply, Server};

on_servers![[redis_8_2 Redis8_2, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9] client_unblock_leaves_the_place_where_it_is];

fn client_unblock_leaves_the_place_where_it_is(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for how in ["", " ERROR"] {
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
        assert_eq!(c.int(&format!("CLIENT UNBLOCK {}{how}", b.id)), 1);
        match b.reply() {
            Reply::Nil if how.is_empty() => {}
            Reply::Error(error) if !how.is_empty() => {
                assert!(error.starts_with("UNBLOCKED "), "{error}");
            }
            other => panic!("{how}: {other:?}"),
        }
        until_absent(&mut c, "k", "b");
    }
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.mode("k"), "free");
    c.int("LOCK.ACQUIRE k b 60000");
}
