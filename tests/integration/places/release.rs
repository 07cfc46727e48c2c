//! LOCK.RELEASE gives up the place of a token that holds nothing.

use crate::harness::{wait_for, Kind, Reply, Server};

on_every_server![a_release_in_a_transaction_or_a_script_gives_up_the_place,];

fn a_release_in_a_transaction_or_a_script_gives_up_the_place(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let script = "EVAL return(redis.call('LOCK.RELEASE',KEYS[1],ARGV[1])) 1 k b";
    for is_script in [false, true] {
        c.int("LOCK.ACQUIRE k a 60000");
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0 KEEP 60000");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        let zero = match is_script {
            true => c.call(script),
            false => c.multi(&["LOCK.RELEASE k b"]).remove(0),
        };
        assert_eq!(zero, Reply::Int(0));
        assert_eq!(b.reply(), Reply::Nil);
        wait_for("d alone", || (c.waiters("k") == ["d"]).then_some(()));
        c.int("LOCK.RELEASE k a");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}
