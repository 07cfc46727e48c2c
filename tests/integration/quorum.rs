//! The quorum example, on five independent servers of which two fail, and then three.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{figure, now_ms, scale, wait_for, Kind, Reply, Server};

#[path = "../../examples/quorum/redlock.rs"]
mod redlock;

use redlock::{Gate, Lease, Redlock};

on_every_server![
    a_quorum_of_five_survives_two_failures,
    the_largest_fence_of_a_quorum_may_fall_but_the_vector_does_not,
    a_lease_is_extended_by_a_majority_or_lost,
];

const SERVERS: usize = 5;
const KEY: &str = "lock:quorum";
const TTL: Duration = Duration::from_secs(4);
/// The limit per request. A stopped server delays every step by this much.
const TIMEOUT: Duration = Duration::from_millis(80);

/// Five servers that do not know each other.
fn servers(kind: Kind) -> Vec<Server> {
    (0..SERVERS).map(|_| Server::start(kind)).collect()
}

fn client(servers: &[Server]) -> Redlock {
    let addresses: Vec<_> = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port))
        .collect();
    Redlock::new(&addresses, TIMEOUT).unwrap()
}

/// A token that no earlier attempt used.
fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn attempt(client: &mut Redlock) -> Option<Lease> {
    client.acquire(KEY, &unique(), TTL)
}

/// Retries until it has the lock.
fn insist(client: &mut Redlock) -> Lease {
    wait_for("the quorum's lock", || attempt(client))
}

fn is_free(server: &Server) -> bool {
    server.client().call(&format!("LOCK.INFO {KEY}")) == Reply::Nil
}

/// The results of the clients.
#[derive(Debug, Default)]
struct Tally {
    leases: AtomicUsize,
    refused: AtomicUsize,
}

/// Clients that all want the lock, each this many times.
fn contend(servers: &[Server], clients: usize, leases_each: usize) -> Tally {
    let tally = Tally::default();
    let inside = AtomicUsize::new(0);
    let gate = Mutex::new(Gate::default());
    thread::scope(|scope| {
        for number in 0..clients {
            let (tally, inside, gate) = (&tally, &inside, &gate);
            scope.spawn(move || {
                let mut client = client(servers);
                let mut rng = StdRng::seed_from_u64(number as u64);
                let mut leases = 0;
                while leases < leases_each {
                    let Some(lease) = attempt(&mut client) else {
                        tally.refused.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(rng.random_range(0..60)));
                        continue;
                    };
                    let others = inside.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(2));
                    let in_time = lease.is_valid();
                    let admitted = gate.lock().unwrap().admits(&lease.fences);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    // If a machine stalls, a lease may be lost, and then it does not count.
                    if in_time {
                        assert_eq!(others, 0, "two holders");
                        assert!(admitted, "{lease:?} {gate:?}");
                        leases += 1;
                    }
                    client.release(&lease);
                }
                tally.leases.fetch_add(leases, Ordering::Relaxed);
            });
        }
    });
    tally
}

fn a_quorum_of_five_survives_two_failures(kind: Kind) {
    let mut servers = servers(kind);
    let all = contend(&servers, 4, 5 * scale());
    servers.iter().for_each(|server| {
        wait_for("all to be released", || is_free(server).then_some(()));
    });
    // One server is stopped, and one is killed.
    servers[1].signal("STOP");
    servers[3].kill();
    let three = contend(&servers, 3, 2 * scale());
    for server in [&servers[0], &servers[2], &servers[4]] {
        wait_for("all to be released", || is_free(server).then_some(()));
    }
    // Two of five are no majority: no client gets the lock, and nothing of the attempts stays.
    servers[4].signal("STOP");
    let mut client = client(&servers);
    for _ in 0..2 * scale() {
        assert!(attempt(&mut client).is_none());
        assert!(is_free(&servers[0]) && is_free(&servers[2]));
    }
    // The resumed servers execute their pending requests. These unwanted votes expire on their own,
    // and prevent no majority.
    servers[4].signal("CONT");
    servers[1].signal("CONT");
    let lease = insist(&mut client);
    assert!(lease.fences.len() >= 3, "{lease:?}");
    client.release(&lease);
    let count = |tally: &Tally| {
        let [leases, refused] = [&tally.leases, &tally.refused].map(|n| n.load(Ordering::Relaxed));
        format!("{leases} leases, {refused} attempts refused")
    };
    figure(
        kind,
        &format!(
            "five servers: {}; two of them failed: {}; three failed: nobody",
            count(&all),
            count(&three)
        ),
    );
}

fn the_largest_fence_of_a_quorum_may_fall_but_the_vector_does_not(kind: Kind) {
    let servers = servers(kind);
    raise_fences_by_an_hour(&mut servers[0].client());
    let mut gate = Gate::default();
    let mut client = client(&servers);
    // A holder on a server prevents that server's vote.
    let occupy = |by: [usize; 2]| {
        for n in by {
            servers[n]
                .client()
                .int(&format!("LOCK.ACQUIRE {KEY} other 60000"));
        }
    };
    let vacate = |by: [usize; 2]| {
        for n in by {
            servers[n]
                .client()
                .int(&format!("LOCK.RELEASE {KEY} other"));
        }
    };
    occupy([3, 4]);
    let first = insist(&mut client);
    assert!(first.fences.keys().eq(&[0, 1, 2]), "{first:?}");
    assert!(gate.admits(&first.fences));
    client.release(&first);
    vacate([3, 4]);
    occupy([0, 1]);
    let second = insist(&mut client);
    assert!(second.fences.keys().eq(&[2, 3, 4]), "{second:?}");
    let largest = |lease: &Lease| *lease.fences.values().max().unwrap();
    assert!(largest(&second) < largest(&first));
    assert!(gate.admits(&second.fences));
    assert!(!gate.admits(&first.fences), "{first:?} is late");
    assert!(gate.admits(&second.fences));
}

fn a_lease_is_extended_by_a_majority_or_lost(kind: Kind) {
    let servers = servers(kind);
    let mut client = client(&servers);
    let mut lease = insist(&mut client);
    let at = lease.valid_until;
    wait_for("the lease to be extended", || {
        client.extend(&mut lease, 10 * TTL).then_some(())
    });
    assert!(lease.valid_until > at);
    let ttls: BTreeMap<_, _> = servers
        .iter()
        .map(|server| (server.port, server.client().int(&format!("PTTL {KEY}"))))
        .collect();
    assert!(ttls.values().all(|ttl| *ttl > 20_000), "{ttls:?}");
    for server in &servers[..2] {
        server.client().int(&format!("DEL {KEY}"));
    }
    assert!(client.extend(&mut lease, TTL), "three are enough");
    servers[2].client().int(&format!("DEL {KEY}"));
    let begun = now_ms();
    assert!(!client.extend(&mut lease, TTL), "two are not");
    // The rest of it was released.
    assert!(servers.iter().all(is_free), "{} ms", now_ms() - begun);
}
