//! A client that closes its connection at the moment of a release. The server is busy during both,
//! so it handles them in one turn of its loop, in their order. With LINGER it does not matter
//! whether the server has written the reply by then. No hold here lasts less than a minute.

use crate::harness::{Kind, Server};

on_every_server![a_waiter_closed_before_or_after_the_release_is_passed_over];

/// Runs `act` while the server is busy and reads nothing.
fn while_frozen(server: &Server, act: impl FnOnce()) {
    let _sleeper = server.sleeps("0.5");
    act();
}

fn a_waiter_closed_before_or_after_the_release_is_passed_over(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut holder) = (server.client(), server.raw());
    for (is_stopped, is_closed_first) in
        [(false, true), (false, false), (true, true), (true, false)]
    {
        c.int("LOCK.ACQUIRE k a 60000");
        let b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 LINGER 0");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let both = || {
            if is_closed_first {
                drop(b);
                holder.send("LOCK.RELEASE k a");
            } else {
                holder.send("LOCK.RELEASE k a");
                drop(b);
            }
        };
        if is_stopped {
            // Both are there when the server polls.
            server.signal("STOP");
            both();
            server.signal("CONT");
        } else {
            while_frozen(&server, both);
        }
        assert_eq!(holder.line().unwrap(), ":1");
        d.fence();
        assert_eq!(c.holders("k"), ["d"]);
        c.int("LOCK.RELEASE k d");
    }
}
