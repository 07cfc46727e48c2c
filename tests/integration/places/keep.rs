//! KEEP: a request that ends without a grant leaves its place in the queue.

use super::fixture::until_absent;
use crate::harness::{Kind, Reply, Server};

on_every_server![client_unblock_leaves_the_place_where_it_is_safe,];

fn client_unblock_leaves_the_place_where_it_is_safe(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    for how in ["", " ERROR"] {
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
        let is_safe = kind != Kind::Redis7_0;
        if !is_safe {
            assert_eq!(c.int(&format!("CLIENT UNBLOCK {}", b.id)), 0);
            assert!(b.is_pending());
            return;
        }
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
