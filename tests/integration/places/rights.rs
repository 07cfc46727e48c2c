//! The rights of users: NOTIFY needs the right to the channel, as PUBLISH does.

use super::fixture::{queued, Subscriber};
use crate::harness::{Kind, Reply, Server};

on_every_server![a_user_needs_the_right_to_the_channel];

fn a_user_needs_the_right_to_the_channel(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let mut worker = server.user("worker", "~* +@all resetchannels &mine:*");
    let asks = [
        "LOCK.ACQUIRE k b 60000 NOTIFY 0 yours",
        "LOCK.ACQUIRE k b 60000 NOTIFY 0 yours KEEP 1000",
        "LOCK.ACQUIRE free b 60000 NOTIFY 0 yours",
        "RWLOCK.RLOCK free b 60000 NOTIFY 0 mine",
    ];
    for line in asks {
        worker.refused(line, "NOPERM ");
        worker.refused("PUBLISH yours x", "NOPERM ");
    }
    // Options are checked first, so that an error is the same whether the lock is free.
    worker.refused("LOCK.ACQUIRE free b 60000 NOTIFY x yours", "ERR ");
    worker.call("MULTI");
    worker.call("LOCK.ACQUIRE free b 60000 NOTIFY 0 yours");
    // The client library takes the one error of the transaction for all.
    worker.refused("EXEC", "NOPERM ");
    assert_eq!(c.waiters("k"), [""; 0]);
    assert_eq!(c.int("EXISTS free"), 0);
    let mut sub = Subscriber::new(&server, "SUBSCRIBE mine:1");
    queued(&mut worker, "LOCK.ACQUIRE k b 60000 NOTIFY 0 mine:1");
    c.int("LOCK.RELEASE k a");
    sub.fence("k", "b");
    // Without a channel none is needed.
    let mut worker = server.user("worker", "~* +@all resetchannels");
    assert_eq!(worker.call("LOCK.ACQUIRE k d 60000 KEEP 60000"), Reply::Nil);
    assert_eq!(c.waiters("k"), ["d"]);
    // The right is asked for when the request comes, not when its end is published.
    let mut worker = server.user("worker", "~* +@all allchannels");
    queued(&mut worker, "LOCK.ACQUIRE k d 60000 NOTIFY 0 mine:1");
    c.text("ACL SETUSER worker resetchannels");
    c.int("LOCK.RELEASE k b");
    sub.fence("k", "d");
    c.int("ACL DELUSER worker");
}
