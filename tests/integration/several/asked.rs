//! In a cluster, the module asks the server about each key in the middle of a step. What it calls
//! must not end that step.

use super::assert_held;
use crate::harness::{Cluster, Kind};

on_every_server![two_requests_of_one_step_do_not_both_get_a_key];

const KEYS: [&str; 2] = ["{t}a", "{t}b"];

fn all_of(token: &str, modes: &str, wait: &str) -> String {
    let keys = KEYS.join(" ");
    format!("LOCK.MACQUIRE 2 {keys} {token} 60000 MODES {modes} {wait}")
}

fn two_requests_of_one_step_do_not_both_get_a_key(kind: Kind) {
    let server = Cluster::node(kind, &[]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE {t}a writer 60000");
    let waits = |token| server.blocked(&all_of(token, "SHARED EXCLUSIVE", "BLOCK 0"));
    let (first, second) = (waits("c1"), waits("c2"));
    c.int("LOCK.RELEASE {t}a writer");
    let fence = first.fence();
    assert_held(&mut c, &KEYS, "c1", fence);
    assert_eq!(c.waiters(KEYS[1]), ["c2"]);
    assert!(second.is_pending());
    c.int("LOCK.RELEASE {t}b c1");
    let next = second.fence();
    assert!(next > fence);
    assert_held(&mut c, &KEYS, "c2", next);
}
