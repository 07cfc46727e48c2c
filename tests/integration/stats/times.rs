//! The measured times, compared with the clock of the clients.

use std::time::{Duration, Instant};

use super::stats;
use crate::harness::{Client, Kind, Server};

on_every_server![wait_times_match_the_clients_measurements];

/// The times of one kind in microseconds: the values that 50 %, 90 %, 99 %, 99.9 % and all do not
/// exceed.
#[track_caller]
fn times(c: &mut Client, of: &str) -> [u64; 5] {
    let stats = stats(c);
    ["p50", "p90", "p99", "p999", "max"].map(|name| stats[&format!("{of}_usec_{name}")])
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

fn wait_times_match_the_clients_measurements(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // A grant at once is not a wait, and neither is a wait without a grant.
    c.int("LOCK.ACQUIRE k a 600000");
    c.call("LOCK.ACQUIRE k b 600000 BLOCK 5");
    assert_eq!(stats(&mut c)["wait_count"], 0);
    let (mut shortest, mut longest) = (u64::MAX, 0);
    for (n, ms) in [30, 60, 90].into_iter().enumerate() {
        let asks = Instant::now();
        let waiter = server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
        let waits = Instant::now();
        std::thread::sleep(Duration::from_millis(ms));
        let least = micros(waits.elapsed());
        c.int("LOCK.RELEASE k a");
        let (_, granted) = waiter.reply_and_instant();
        let most = micros(granted - asks);
        (shortest, longest) = (shortest.min(least), longest.max(most));
        let [p50, _, _, _, max] = times(&mut c, "wait");
        // The percentiles are accurate to one percent.
        assert!(
            max >= least && max <= longest + longest / 100,
            "{max} is not {least}..{longest}"
        );
        assert!(
            p50 >= shortest && p50 <= max,
            "{p50} is not {shortest}..{max}"
        );
        assert_eq!(stats(&mut c)["wait_count"], n as u64 + 1);
        c.int("LOCK.RELEASE k b");
        c.int("LOCK.ACQUIRE k a 600000");
    }
}
