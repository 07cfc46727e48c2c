//! KEEP and NOTIFY inside scripts and functions: KEEP leaves a place at once, NOTIFY is an error.

use super::fixture::place;
use crate::harness::{Kind, Reply, Server};

on_every_server![in_a_script_or_a_function_a_place_needs_no_listener];

const ASK: &str = "return(redis.call('LOCK.ACQUIRE',KEYS[1],unpack(ARGV)))";

fn in_a_script_or_a_function_a_place_needs_no_listener(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let script = format!("EVAL {ASK} 1");
    let mut asks = vec![script.as_str()];
    c.load_functions("redis.register_function('ask', function(keys, args) return redis.call('LOCK.ACQUIRE', keys[1], unpack(args)) end)");
    asks.push("FCALL ask 1");
    for ask in asks {
        c.int("LOCK.ACQUIRE k a 60000");
        for words in ["NOTIFY 0 c", "NOTIFY 0 c KEEP 1000"] {
            for key in ["k", "free"] {
                let line = format!("{ask} {key} b 60000 {words}");
                c.refused_saying(&line, "NOTIFY");
            }
        }
        assert_eq!(c.waiters("k"), [""; 0]);
        assert_eq!(c.int("EXISTS free"), 0);
        for words in ["KEEP 60000", "BLOCK 0 KEEP 60000"] {
            let line = format!("{ask} k b 60000 {words}");
            assert_eq!(c.call(&line), Reply::Nil, "{line}");
            assert!(place(&mut c, "k", "b").is_absent(), "{line}");
        }
        assert_eq!(c.call(&format!("{ask} k d 60000 BLOCK 0")), Reply::Nil);
        assert_eq!(c.waiters("k"), ["b"]);
        c.int("LOCK.RELEASE k a");
        assert_eq!(c.call(&format!("{ask} k d 60000")), Reply::Nil);
        assert!(c.int(&format!("{ask} k b 60000 KEEP 60000")) > 0);
        assert_eq!(c.holders("k"), ["b"]);
        c.call("DEL k");
    }
}
