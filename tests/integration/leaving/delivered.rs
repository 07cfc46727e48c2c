//! A client whose connection exists when the server writes the reply to its grant has the hold,
//! also if it is closed right after. No hold here lasts less than a minute, so none ends by its
//! deadline.

use super::undelivered::let_the_timer_run;
use crate::harness::{Kind, Server};

on_every_server![
    a_delivered_hold_stays_when_its_owner_leaves_in_the_next_turn,
    a_delivered_hold_stays_when_its_owner_is_killed_in_the_same_turn,
];

fn a_delivered_hold_stays_when_its_owner_leaves_in_the_next_turn(kind: Kind) {
    let server = Server::start(kind);
    let (mut c, mut killer) = (server.client(), server.raw());
    for is_killed in [true, false] {
        c.int("LOCK.ACQUIRE k a 60000");
        let mut b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
        // The end comes before the release, so the next turn begins with it.
        let _sleeper = server.sleeps_before("0.5", "LOCK.RELEASE k a");
        match is_killed {
            true => killer.send(&format!("CLIENT KILL ID {}", b.id)),
            false => b.leave(),
        }
        assert!(b.line().unwrap().starts_with(':'));
        assert_eq!(b.line(), None);
        if is_killed {
            assert_eq!(killer.line().unwrap(), ":1");
        }
        let_the_timer_run(&server);
        assert_eq!(c.holders("k"), ["b"]);
        assert!(d.is_pending());
        c.int("LOCK.RELEASE k b");
        d.fence();
        c.int("LOCK.RELEASE k d");
    }
}

fn a_delivered_hold_stays_when_its_owner_is_killed_in_the_same_turn(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE j a 60000");
    c.int("LOCK.ACQUIRE other a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let l = server.blocked("LOCK.ACQUIRE j l 60000 BLOCK 0 LINGER 0");
    // What comes behind a request that waits runs in the turn of its grant.
    let mut u = server.raw_blocked(&format!(
        "LOCK.ACQUIRE other u 60000 BLOCK 0\r\nCLIENT KILL ID {}\r\nCLIENT KILL ID {}",
        b.id, l.id
    ));
    c.multi(&[
        "LOCK.RELEASE k a",
        "LOCK.RELEASE j a",
        "LOCK.RELEASE other a",
    ]);
    assert!(u.line().unwrap().starts_with(':'));
    assert_eq!(u.line().unwrap(), ":1", "b was there to be killed");
    assert_eq!(u.line().unwrap(), ":1", "l was there to be killed");
    // Its hold ends by LINGER, or else by its ttl.
    c.until("EXISTS j", 0);
    let_the_timer_run(&server);
    assert_eq!(c.holders("k"), ["b"]);
}
