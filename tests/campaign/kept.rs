//! Holds of all adapters outlive a failover in which the new primary first refuses all renewals.

use std::io::BufRead;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::adapters::{monotonic_us, those_set_up, Adapter, Held, Task};
use crate::harness::{wait_for, CutLink, Kind, Server};

/// Adapters renew at a third of it.
const TTL_MS: u64 = 9_000;
/// The new primary is without a majority for so long: each adapter wants to renew meanwhile.
const ALONE: Duration = Duration::from_millis(3_300);
/// Longer than a lease, whenever it began before the failover.
const HOLD_MS: u64 = 16_000;

#[test]
#[ignore = "make campaign"]
fn tryagain_at_a_renewal_keeps_the_holds_of_all_adapters() {
    thread::scope(|scope| {
        for kind in [Kind::Redis7_0, Kind::Valkey9] {
            scope.spawn(move || fail_over_under_adapters(kind));
        }
    });
}

fn fail_over_under_adapters(kind: Kind) {
    let ttl = TTL_MS.to_string();
    let options = ["guard", "quorum", "guard-fresh", "1000", "max-ttl", &ttl];
    let options = [&options[..], &["--repl-diskless-sync-delay", "0"]].concat();
    let mut servers: Vec<_> = (0..3).map(|_| Server::start_with(kind, &options)).collect();
    for replica in &servers[1..] {
        replica.follow(&servers[0]);
        replica.wait_until_link_is_up();
    }
    let mut c = servers[0].client();
    c.until_info("lock_guard", "open");
    let way = CutLink::to(servers[0].port);
    let adapters: Vec<_> = those_set_up()
        .iter()
        .map(|language| {
            let task = Task {
                port: way.port,
                key: language,
                keys: 1,
                clients: 1,
                ttl_ms: TTL_MS,
                hold_ms: HOLD_MS,
            };
            (*language, Adapter::start(language, &task))
        })
        .collect();
    for (language, _) in &adapters {
        wait_for("its hold", || {
            (!c.holders(&format!("{language}0")).is_empty()).then_some(())
        });
    }
    // They have heard of their grants, too.
    sleep(Duration::from_millis(500));
    servers[1].wait_until_it_follows(&servers[0]);
    servers[0].kill();
    let mut c = servers[1].client();
    c.text("REPLICAOF NO ONE");
    let promoted_us = monotonic_us(Instant::now());
    way.turn_to(servers[1].port);
    sleep(ALONE);
    assert_eq!(c.info("lock_guard"), "alone");
    // `count=12`.
    let refused = c.info("errorstat_TRYAGAIN");
    let count: usize = refused.trim_start_matches("count=").parse().unwrap();
    assert!(count >= adapters.len(), "{refused}");
    servers[2].follow(&servers[1]);
    for (language, (adapter, mut said)) in adapters {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let held = Held::read(line.trim_end()).unwrap_or_else(|| panic!("{language}: {line}"));
        assert!(held.from_us < promoted_us, "{language}: {held:?}");
        // No lease that began before the failover lasts until then.
        let over_us = promoted_us + TTL_MS * 1_000;
        assert!(
            held.until_us > over_us,
            "{language}: {held:?}, promoted at {promoted_us}"
        );
        drop(adapter);
    }
    eprintln!(
        "{}: {count} renewals were refused by TRYAGAIN, and all holds went on",
        kind.name()
    );
}
