//! KEEP and NOTIFY inside MULTI, scripts and functions.

use super::fixture::place;
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    keep_in_a_script_leaves_a_place_at_once,
    keep_in_a_function_leaves_a_place_at_once,
    notify_in_a_script_or_a_function_is_an_error,
];

const ASK: &str = "return(redis.call('LOCK.ACQUIRE',KEYS[1],unpack(ARGV)))";

fn keep_in_a_script_leaves_a_place_at_once(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    keeps_a_place(&mut c, &format!("EVAL {ASK} 1 k"));
}

fn keep_in_a_function_leaves_a_place_at_once(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return; // No functions.
    }
    let server = Server::start(kind);
    let mut c = server.client();
    load_function(&mut c);
    c.int("LOCK.ACQUIRE k a 60000");
    keeps_a_place(&mut c, "FCALL ask 1 k");
}

fn load_function(c: &mut Client) {
    c.load_functions("redis.register_function('ask', function(keys, args) return redis.call('LOCK.ACQUIRE', keys[1], unpack(args)) end)");
}

#[track_caller]
fn keeps_a_place(c: &mut Client, ask: &str) {
    for words in ["KEEP 60000", "BLOCK 0 KEEP 60000"] {
        leaves_place_as(c, &format!("{ask} b 60000 {words}"), "b");
    }
    assert_eq!(c.call(&format!("{ask} d 60000 BLOCK 0")), Reply::Nil);
    assert_eq!(c.waiters("k"), ["b"]);
    c.int("LOCK.RELEASE k a");
    assert_eq!(c.call(&format!("{ask} d 60000")), Reply::Nil);
    assert!(c.int(&format!("{ask} b 60000 KEEP 60000")) > 0);
    assert_eq!(c.holders("k"), ["b"]);
}

#[track_caller]
fn leaves_place_as(c: &mut Client, line: &str, token: &str) {
    assert_eq!(c.call(line), Reply::Nil, "{line}");
    assert!(place(c, "k", token).is_absent(), "{line}");
}

fn notify_in_a_script_or_a_function_is_an_error(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let script = format!("EVAL {ASK} 1");
    let mut asks = vec![script.as_str()];
    if kind.is_7_0_or_later() {
        load_function(&mut c);
        asks.push("FCALL ask 1");
    }
    c.int("LOCK.ACQUIRE k a 60000");
    for ask in asks {
        for words in ["NOTIFY 0 c", "NOTIFY 0 c KEEP 1000"] {
            for key in ["k", "free"] {
                let line = format!("{ask} {key} b 60000 {words}");
                c.refused_saying(&line, "NOTIFY");
            }
        }
    }
    assert_eq!(c.waiters("k"), [""; 0]);
    assert_eq!(c.int("EXISTS free"), 0);
}
