//! Locks that expire while the server is down, and locks that do not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{figure, now_ms, now_us, scale, wait_for};
use crate::harness::{Client, Kind, Later, Reply, Server, SYNCED};

const LOCKS: usize = 60;

/// Most locks expire within the first span, some of them while the server is down. The others
/// expire much later.
const TTLS_MS: [Range<i64>; 3] = [100..900, 100..900, 2_000..4_000];

/// The number of surviving locks that get a waiter.
const AWAITED: usize = 8;

/// The longest time that a client waits for a free lock.
const LATE_MS: i64 = 5_000;

/// The deadline, and the time from which it has certainly passed. 6.2 reports only the remaining
/// time.
#[derive(Clone, Copy, Debug)]
struct End {
    from_ms: i64,
    until_ms: i64,
}

fn end_of(c: &mut Client, key: &str) -> Option<End> {
    if let Reply::Int(at) = c.call(&format!("PEXPIRETIME {key}")) {
        return (at >= 0).then_some(End {
            from_ms: at,
            until_ms: at,
        });
    }
    let before = now_ms();
    let rest = c.int(&format!("PTTL {key}"));
    (rest >= 0).then(|| End {
        from_ms: before + rest,
        until_ms: now_ms() + rest,
    })
}

pub fn deadlines_hold_over_a_restart(kind: Kind) {
    let (mut gone, mut same, mut taken) = (0, 0, 0);
    for (options, persist) in [(&SYNCED[..], "PING"), (&[], "SAVE")] {
        for _ in 0..scale() {
            let seed = now_us();
            let mut rng = StdRng::seed_from_u64(seed);
            let mut server = Server::start_with(kind, options);
            let ends = take_locks(&mut server.client(), &mut rng);
            server.client().call(persist);
            server.kill();
            let some = Duration::from_millis(rng.random_range(200..600));
            std::thread::sleep(some);
            server.start_again();
            let context = format!("{kind:?}, {persist}, seed {seed}");
            let (lost, kept) = compare(&server, &ends, &context);
            (gone, same) = (gone + lost.len(), same + kept.len());
            assert!(!lost.is_empty() && !kept.is_empty(), "{context}");
            taken += take_over(&server, &lost, &kept, &context);
        }
    }
    figure(
        kind,
        &format!("{gone} locks gone, {same} with the same deadline, {taken} of either taken by the next at once"),
    );
}

/// Acquires locks of both modes. Returns their deadlines.
fn take_locks(c: &mut Client, rng: &mut StdRng) -> BTreeMap<String, End> {
    for n in 0..LOCKS {
        let ttl = rng.random_range(TTLS_MS[n / 3 % TTLS_MS.len()].clone());
        match n % 3 {
            0 => c.int(&format!("LOCK.ACQUIRE k{n} dead {ttl}")),
            1 => c.int(&format!("RWLOCK.RLOCK k{n} dead {ttl}")),
            _ => {
                c.int(&format!("RWLOCK.RLOCK k{n} dead {ttl}"));
                let ttl = rng.random_range(ttl / 2..ttl);
                c.int(&format!("RWLOCK.RLOCK k{n} dead-too {ttl}"))
            }
        };
    }
    let ends = (0..LOCKS).map(|n| format!("k{n}"));
    ends.filter_map(|key| Some((key.clone(), end_of(c, &key)?)))
        .collect()
}

type Ends<'e> = Vec<(&'e str, End)>;

/// The number of locks that are gone, and of those that still have their deadline.
#[track_caller]
fn compare<'e>(
    server: &Server,
    ends: &'e BTreeMap<String, End>,
    context: &str,
) -> (Ends<'e>, Ends<'e>) {
    let mut c = server.client();
    let (mut gone, mut kept) = (Vec::new(), Vec::new());
    for (key, end) in ends {
        let before = now_ms();
        let now = end_of(&mut c, key);
        let after = now_ms();
        match now {
            Some(now) => {
                let is_same = now.from_ms <= end.until_ms && end.from_ms <= now.until_ms;
                assert!(
                    is_same,
                    "{context}: {key} ended at {end:?}, ends at {now:?}"
                );
                assert!(before <= end.until_ms, "{context}: {key} ended at {end:?}");
                kept.push((&key[..], *end));
            }
            None => {
                // Redis 8.2 deletes a key within the millisecond of its deadline.
                assert!(
                    after >= end.from_ms,
                    "{context}: {key} ends at {end:?}, is gone"
                );
                gone.push((&key[..], *end));
            }
        }
    }
    (gone, kept)
}

/// Other clients acquire the locks: the expired ones without waiting, the rest at the deadline and
/// not before.
#[track_caller]
fn take_over(server: &Server, gone: &Ends<'_>, kept: &Ends<'_>, context: &str) -> usize {
    let mut by_end = kept.clone();
    by_end.sort_by_key(|(_, end)| end.from_ms);
    let awaited: Vec<(_, _, Later)> = by_end
        .iter()
        .take(AWAITED)
        .map(|(key, end)| {
            let line = format!("LOCK.ACQUIRE {key} next 60000 BLOCK 0");
            (*key, *end, server.later(&line))
        })
        .collect();
    let mut c = server.client();
    for (key, _) in gone {
        for token in ["dead", "dead-too"] {
            assert_eq!(
                c.int(&format!("LOCK.RENEW {key} {token} 60000")),
                0,
                "{context}"
            );
            assert_eq!(
                c.int(&format!("LOCK.RELEASE {key} {token}")),
                0,
                "{context}"
            );
        }
        assert!(
            c.int(&format!("LOCK.ACQUIRE {key} next 60000")) > 0,
            "{context}"
        );
    }
    let taken = gone.len() + awaited.len();
    for (key, end, later) in awaited {
        assert!(later.fence() > 0);
        let since = wait_for("the new holder", || {
            let info = c.call(&format!("LOCK.INFO {key}"));
            let holder = info.field("holders").items()[0].clone();
            (holder.field("token") == Reply::from("next")).then(|| holder.field("since").as_int())
        });
        let on_time = (end.from_ms..end.until_ms + LATE_MS).contains(&since);
        assert!(
            on_time,
            "{context}: {key} ended at {end:?}, taken at {since}"
        );
    }
    taken
}
