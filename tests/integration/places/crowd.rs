//! Many waited keys: what the timer does for all of them lets clients in between.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::fixture::{figure, Subscriber};
use crate::harness::{figure as report, wait_for, Client, Cluster, Kind, Server};

on_every_server_at_night![
    a_flush_of_many_waited_keys_lets_others_in,
    the_longest_waits_of_many_keys_come_first,
];
on_every_server![places_end_with_their_slot_and_no_others];

/// How much time a server spends on its processor until it answers a PING, at most. On a healthy
/// machine it is 2 ms, and was some 100 ms for this many keys.
const MOST_MS: f64 = 30.0;
const MANY: usize = 20_000;
const LIMITS: [&str; 4] = ["max-waiters", "1000000", "max-waiters-per-key", "1000000"];

/// For how long a process has been on a processor, in milliseconds. Other processes do not count.
fn spent_ms(server: &Server) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/schedstat", server.pid())).unwrap();
    let spent_ns: u64 = stat.split(' ').next().unwrap().parse().unwrap();
    spent_ns as f64 / 1e6
}

/// How much time the server spends until it answers a PING, at most, until `act` returns.
fn longest_ping_ms(server: &Server, act: impl FnOnce()) -> f64 {
    let (answered, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut c = server.client();
            let mut longest = 0.0_f64;
            while !is_over.load(Ordering::Relaxed) {
                let before = spent_ms(server);
                c.text("PING");
                longest = longest.max(spent_ms(server) - before);
                answered.fetch_add(1, Ordering::Relaxed);
            }
            longest
        });
        wait_for("a few replies", || {
            (answered.load(Ordering::Relaxed) > 9).then_some(())
        });
        act();
        is_over.store(true, Ordering::Relaxed);
        pings.join().unwrap()
    })
}

/// A machine with more to do may stop the client between a reply and its look at the server, so it
/// measures again.
fn lets_others_in(kind: Kind, what: &str, mut measure: impl FnMut(&Server) -> f64) {
    let server = Server::start_with(kind, &LIMITS);
    let mut longest = Vec::new();
    for _ in 0..4 {
        longest.push(measure(&server));
        if longest.iter().any(|ms| *ms < MOST_MS) {
            return report(
                kind,
                &format!("{what}: {longest:.1?} ms until a PING is answered"),
            );
        }
    }
    panic!("{what}: {longest:.1?} ms");
}

fn many_places(c: &mut Client, how: &str) {
    let lines = (0..MANY).flat_map(|n| {
        let hold = format!("LOCK.ACQUIRE k{n} a 600000");
        [hold, format!("LOCK.ACQUIRE k{n} b 600000 {how}")]
    });
    c.send_all(lines);
    assert_eq!(figure(c, "waiters"), MANY as i64);
}

fn a_flush_of_many_waited_keys_lets_others_in(kind: Kind) {
    for how in ["KEEP 600000", "NOTIFY 0 c"] {
        lets_others_in(kind, how, |server| {
            let mut c = server.client();
            let _sub = Subscriber::new(server, "SUBSCRIBE c");
            many_places(&mut c, how);
            let longest = longest_ping_ms(server, || {
                // The keys themselves go elsewhere.
                c.ok("FLUSHALL ASYNC");
                c.until_info("lock_waiters", "0");
            });
            let held = if how.starts_with("KEEP") { 0 } else { MANY };
            assert_eq!(c.int("DBSIZE"), held as i64);
            c.text("FLUSHALL");
            longest
        });
    }
}

fn places_end_with_their_slot_and_no_others(kind: Kind) {
    let server = Cluster::node(kind, &["--cluster-require-full-coverage", "no"]);
    let mut c = server.client();
    let keys = (0..2_000).map(|n| format!("{{{}}}{n}", ["a", "b"][n % 2]));
    let lines = keys.flat_map(|key| {
        let hold = format!("LOCK.ACQUIRE {key} a 600000");
        [hold, format!("LOCK.ACQUIRE {key} b 600000 KEEP 600000")]
    });
    c.send_all(lines);
    let [gone, stays] = ["{a}0", "{b}1"].map(|key| {
        let line = format!("LOCK.ACQUIRE {key} blocked 60000 BLOCK 0");
        server.blocked(&line)
    });
    // One key has more places than are ended in one go.
    c.send_all((0..300).map(|n| format!("LOCK.ACQUIRE {{a}}0 t{n} 60000 KEEP 600000")));
    let slot = c.int("CLUSTER KEYSLOT a");
    c.text(&format!("CLUSTER DELSLOTS {slot}"));
    gone.error_of(&["TRYAGAIN ", "CLUSTERDOWN "]);
    c.until_info("lock_waiters", "1001");
    assert!(stays.is_pending());
    assert_eq!(c.int("LOCK.RELEASE {b}1 a"), 1);
    c.int("LOCK.ACQUIRE {b}1 b 60000");
    assert_eq!(c.int("LOCK.RELEASE {b}1 b"), 1);
    stays.fence();
}

fn the_longest_waits_of_many_keys_come_first(kind: Kind) {
    let server = Server::start_with(kind, &LIMITS);
    let mut c = server.client();
    let _sub = Subscriber::new(&server, "SUBSCRIBE c");
    // Above 20,000 keys the server does not look at all of them.
    const KEYS: usize = 20_100;
    let lines = (0..KEYS).flat_map(|n| {
        let hold = format!("LOCK.ACQUIRE k{n} a 600000");
        [hold, format!("LOCK.ACQUIRE k{n} b 600000 NOTIFY 0 c")]
    });
    c.send_all(lines);
    // The longest wait ends, and its key is waited for again.
    for line in ["CANCEL k0", "ACQUIRE k0 b 600000 NOTIFY 0 c"] {
        c.call(&format!("LOCK.{line}"));
    }
    let all = c.call("LOCK.TOP 18446744073709551615");
    let names = all.items().iter().map(|one| one.field("key"));
    let names: Vec<_> = names.map(|name| name.as_bytes().to_vec()).collect();
    let expected = (1..=3_000).map(|n| format!("k{n}").into_bytes());
    assert!(names.into_iter().eq(expected));
}
