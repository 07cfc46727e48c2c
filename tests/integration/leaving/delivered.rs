//! A client that is granted and closed in the same turn of the server's loop, before or after it
//! reads its reply. No hold here lasts less than a minute, so none ends by its deadline.

use std::thread::sleep;
use std::time::Duration;

use super::undelivered::let_the_timer_run;
use crate::harness::{Client, Kind, Raw, Server};

on_every_server![
    a_delivered_hold_stays_when_its_owner_leaves_in_the_next_turn,
    a_delivered_hold_stays_when_its_owner_leaves_during_a_long_script,
    a_hand_off_calls_client_list_only_with_client_eviction,
    a_grant_to_a_client_killed_by_its_fellow_grantee_is_taken_back,
    a_grant_to_a_closed_client_is_taken_back_with_client_eviction,
];

/// The number of calls of a command.
fn calls(c: &mut Client, command: &str) -> String {
    c.calls_of(command).to_string()
}

/// Hands the lock from `a` to `b`. Returns how often the module listed the server's clients for
/// that.
fn questions_of_a_hand_off(server: &Server, c: &mut Client) -> String {
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.text("CONFIG RESETSTAT");
    c.int("LOCK.RELEASE k a");
    b.fence();
    c.int("LOCK.RELEASE k b");
    assert_eq!(calls(c, "lock.release"), "2");
    calls(c, "client|list")
}

fn a_hand_off_calls_client_list_only_with_client_eviction(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for _ in 0..3 {
        assert_eq!(questions_of_a_hand_off(&server, &mut c), "0");
        // The module listens to this event only while a client waits, and then again.
        sleep(Duration::from_millis(150));
    }
    // Only the server knows whether an evicted client has read the reply.
    c.text("CONFIG SET maxmemory-clients 1gb");
    assert_eq!(questions_of_a_hand_off(&server, &mut c), "1");
    c.text("CONFIG SET maxmemory-clients 0");
    assert_eq!(questions_of_a_hand_off(&server, &mut c), "0");
}

/// Waits for `key` with a command pipelined after it, which runs in the turn of the grant.
fn with_more(server: &Server, key: &str, more: &str) -> Raw {
    server.raw_blocked(&format!("LOCK.ACQUIRE {key} u 60000 BLOCK 0\r\n{more}"))
}

fn a_grant_to_a_client_killed_by_its_fellow_grantee_is_taken_back(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE other a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let mut u = with_more(&server, "other", &format!("CLIENT KILL ID {}", b.id));
    c.multi(&["LOCK.RELEASE k a", "LOCK.RELEASE other a"]);
    assert!(u.line().unwrap().starts_with(':'));
    assert_eq!(u.line().unwrap(), ":1", "b was there to be killed");
    b.broken();
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}

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

fn a_delivered_hold_stays_when_its_owner_leaves_during_a_long_script(kind: Kind) {
    let server = Server::start_with(kind, &["--lua-time-limit", "5"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE other a 60000");
    let mut b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let script = "EVAL \"while true do end\" 0";
    let mut u = with_more(&server, "other", script);
    let mut releaser = server.raw();
    releaser.send("MULTI\r\nLOCK.RELEASE k a\r\nLOCK.RELEASE other a\r\nEXEC");
    // The server answers in the middle of the script.
    assert!(b.line().unwrap().starts_with(':'));
    drop(b);
    server.wait_until_busy();
    assert_eq!(c.text("SCRIPT KILL"), "OK");
    assert!(u.line().unwrap().starts_with(':'));
    assert!(u.line().unwrap().starts_with('-'));
    let_the_timer_run(&server);
    assert_eq!(c.holders("k"), ["b"]);
    assert!(d.is_pending());
}

fn a_grant_to_a_closed_client_is_taken_back_with_client_eviction(kind: Kind) {
    let server = Server::start_with(kind, &["--maxmemory-clients", "1gb"]);
    let mut c = server.client();
    c.text("ACL SETUSER u on nopass allkeys +@all");
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = server.raw_blocked("AUTH u any\r\nLOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.multi(&["LOCK.RELEASE k a", "ACL DELUSER u"]);
    assert_eq!(b.line().unwrap(), "+OK");
    assert_eq!(b.line(), None);
    d.fence();
    assert_eq!(c.holders("k"), ["d"]);
}
