//! Connections that come and go at random, with and without LINGER.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::bound;
use crate::harness::{scale, wait_for, Kind, Raw, Server};

on_every_server![whatever_is_bound_ends];

/// Who asks for what: in a strict storm everybody says LINGER 0, and no lock leaves its key.
fn line(rng: &mut StdRng, is_strict: bool) -> Option<String> {
    let (key, token) = (rng.random_range(0..6), rng.random_range(0..4));
    let linger = match is_strict {
        true => " LINGER 0",
        false => ["", " LINGER 0", " LINGER 0", " LINGER 30"][rng.random_range(0..4)],
    };
    let ttl = [600_000, 3][usize::from(rng.random_range(0..20) == 0)];
    Some(match rng.random_range(0..40) {
        0..12 => format!("LOCK.ACQUIRE k{key} t{token} {ttl}{linger}"),
        12..20 => format!("RWLOCK.RLOCK k{key} t{token} {ttl}{linger}"),
        20..24 => format!("LOCK.ACQUIRE k{key} t{token} {ttl} LIMIT 2{linger}"),
        24..29 => format!("LOCK.ACQUIRE k{key} t{token} {ttl} NOTIFY 0 c{linger}"),
        29..31 => format!("LOCK.RENEW k{key} t{token} 600000"),
        31..34 => format!("LOCK.RELEASE k{key} t{token}"),
        34 if !is_strict => format!("RENAME k{key} k{}", rng.random_range(0..6)),
        34 | 35 => format!("DEL k{key}"),
        36 => "SWAPDB 0 1".into(),
        _ => return None,
    })
}

fn whatever_is_bound_ends(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut subscriber = server.raw();
    subscriber.send("SUBSCRIBE c");
    for seed in 0..20 * scale() as u64 {
        let is_strict = seed % 2 == 0;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut connections: Vec<Raw> = (0..20).map(|_| server.raw()).collect();
        for _ in 0..1_500 {
            let n = rng.random_range(0..connections.len());
            match line(&mut rng, is_strict) {
                Some(line) => {
                    connections[n].send(&line);
                    assert!(connections[n].line().is_some(), "{line}");
                }
                None => connections[n] = server.raw(),
            }
        }
        assert!((1..=48).contains(&bound(&mut c)));
        drop(connections);
        wait_for("all bindings to end", || {
            let is_over = bound(&mut c) == 0 && c.info("connected_clients") == "2";
            is_over.then_some(())
        });
        if is_strict {
            wait_for("all locks to end", || {
                // Both databases are without a key, and nobody waits.
                let is_over =
                    !c.text("INFO keyspace").contains("keys=") && c.info("lock_waiters") == "0";
                is_over.then_some(())
            });
        }
        assert!(server.is_running());
        c.call("FLUSHALL");
        wait_for("the places to end", || {
            let tokens = (0..4).flat_map(|token| (0..6).map(move |key| (key, token)));
            for (key, token) in tokens {
                for db in 0..2 {
                    c.call(&format!("SELECT {db}"));
                    c.int(&format!("LOCK.RELEASE k{key} t{token}"));
                }
            }
            (c.info("lock_waiters") == "0").then_some(())
        });
    }
    assert!(c.info("lock_disconnected").parse::<u64>().unwrap() > 100);
    assert!(c.info("lock_disconnected_later").parse::<u64>().unwrap() > 0);
}
