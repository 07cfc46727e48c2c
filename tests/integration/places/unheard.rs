//! A grant that nobody receives is not made. More of it is in tests/scenarios/unheard_grants.txt.

use super::fixture::{place, queued, Subscriber};
use crate::harness::{Kind, Reply, Server};

on_every_server![
    a_killed_subscriber_hears_no_message,
    a_subscriber_at_a_replica_does_not_count,
];

/// The only subscriber is killed, in the same step or before. Others listen to other channels.
fn a_killed_subscriber_hears_no_message(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut others = Subscriber::new(&server, "SUBSCRIBE cc C");
    others.subscribe("PSUBSCRIBE d*");
    for is_one_step in [true, false] {
        c.int("LOCK.ACQUIRE k a 60000");
        let sub = Subscriber::new(&server, "SUBSCRIBE c other");
        queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c");
        let kill = format!("CLIENT KILL ID {}", sub.id);
        if is_one_step {
            c.multi(&[&kill, "LOCK.RELEASE k a"]);
        } else {
            c.int(&kill);
            c.int("LOCK.RELEASE k a");
        }
        assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    }
    assert_eq!(others.so_far(), [""; 0]);
}

/// What the module publishes stays on the server, while PUBLISH goes to the replicas, too.
fn a_subscriber_at_a_replica_does_not_count(kind: Kind) {
    let primary = Server::start(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let mut c = primary.client();
    let mut sub = Subscriber::new(&replica, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k a 60000");
    queued(&mut c, "LOCK.ACQUIRE k b 60000 NOTIFY 0 c KEEP 60000");
    c.int("LOCK.RELEASE k a");
    assert!(place(&mut c, "k", "b").is_absent());
    c.int("PUBLISH c end");
    assert_eq!(sub.text(), "end");
}
