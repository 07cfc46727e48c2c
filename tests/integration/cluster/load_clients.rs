//! Clients that acquire and release a few locks through the cluster-aware library, and record the
//! replies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redis::cluster::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{FromRedisValue, RedisError};

use redis_lock::lock::slot::slot_of;

use super::journal::Hold;
use crate::harness::{cluster_connection, now_us, Cluster, SetWhenDropped};

const CLIENTS: usize = 8;
/// The ttl of a hold, in case nobody can release it.
pub const TTL_MS: u64 = 3_000;
/// How long a client retries after errors.
const PATIENCE: Duration = Duration::from_secs(15);

/// A second key of the same slot.
pub fn twin_of(key: &str) -> String {
    format!("{{{key}}}twin")
}

/// The token of a request for a key and its twin.
fn both_token(client: usize, n: u64) -> String {
    format!("both.{client}.{n}")
}

pub fn is_for_both(token: &[u8]) -> bool {
    token.starts_with(b"both.")
}

/// The record of the load clients.
#[derive(Debug, Default)]
pub struct Journal {
    pub holds: Vec<Hold>,
    /// Errors that the library passed on to the clients, by code.
    pub errors: BTreeMap<String, usize>,
}

/// Lets the clients work on `keys` while `act` changes the cluster.
pub fn with_load_clients<R>(
    cluster: &mut Cluster,
    keys: &[String],
    act: impl FnOnce(&mut Cluster) -> R,
) -> (Journal, R) {
    let addresses = cluster.addresses();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Worker::new(number, keys, &addresses, &over);
                scope.spawn(|| client.run())
            })
            .collect();
        let acted = {
            // If `act` panics, the clients must end too. Otherwise the scope never would.
            let _over = SetWhenDropped(&over);
            act(cluster)
        };
        let mut journal = Journal::default();
        for client in clients {
            let Journal { holds, errors } = client.join().expect("a client that ends well");
            journal.holds.extend(holds);
            for (code, count) in errors {
                *journal.errors.entry(code).or_default() += count;
            }
        }
        (journal, acted)
    })
}

struct Worker<'a> {
    number: usize,
    keys: &'a [String],
    addresses: &'a [String],
    over: &'a AtomicBool,
    connection: ClusterConnection,
    rng: StdRng,
    journal: Journal,
}

impl<'a> Worker<'a> {
    fn new(
        number: usize,
        keys: &'a [String],
        addresses: &'a [String],
        over: &'a AtomicBool,
    ) -> Self {
        Self {
            number,
            keys,
            addresses,
            over,
            connection: cluster_connection(addresses).expect("a connection"),
            rng: StdRng::seed_from_u64(number as u64),
            journal: Journal::default(),
        }
    }

    fn run(mut self) -> Journal {
        for n in 0u64.. {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let key = self.keys[self.rng.random_range(0..self.keys.len())].clone();
            match self.rng.random_range(0..4) {
                0 => self.take_both_and_give_up(&key, &both_token(self.number, n)),
                _ => self.take_and_give_up(&key, &format!("{}.{n}", self.number)),
            }
        }
        self.journal
    }

    fn take_and_give_up(&mut self, key: &str, token: &str) {
        let is_shared = self.rng.random_range(0..4) == 0;
        let mut acquire = redis::cmd(if is_shared {
            "RWLOCK.RLOCK"
        } else {
            "LOCK.ACQUIRE"
        });
        acquire.arg(key).arg(token).arg(TTL_MS);
        self.hold(acquire, &[key], token, is_shared);
    }

    /// A key and its twin in one step.
    fn take_both_and_give_up(&mut self, key: &str, token: &str) {
        let twin = twin_of(key);
        let mut acquire = redis::cmd("LOCK.MACQUIRE");
        acquire.arg(2).arg(&twin).arg(key).arg(token).arg(TTL_MS);
        self.hold(acquire, &[key, &twin], token, false);
    }

    fn hold(&mut self, mut acquire: redis::Cmd, keys: &[&str], token: &str, is_shared: bool) {
        if self.rng.random_range(0..4) > 0 {
            acquire.arg("BLOCK").arg(self.rng.random_range(20..1_000));
        }
        let first_asked_us = now_us();
        let (asked_us, fence) = self.ask::<Option<u64>>(&acquire, keys[0]);
        let delivered_us = now_us();
        thread::sleep(Duration::from_micros(self.rng.random_range(0..3_000)));
        let nothing_to_release = fence == Some(None);
        if nothing_to_release {
            return;
        }
        for key in keys {
            let given_up_us = now_us();
            let mut release = redis::cmd("LOCK.RELEASE");
            release.arg(key).arg(token);
            let (_, released) = self.ask::<bool>(&release, key);
            let released_us = now_us();
            let Some(Some(fence)) = fence else {
                continue;
            };
            let over_us = asked_us + TTL_MS * 1_000;
            self.journal.holds.push(Hold {
                key: key.to_string(),
                token: token.into(),
                is_shared,
                fence,
                asked_us: first_asked_us,
                delivered_us,
                end_us: given_up_us.min(over_us),
                released: released.filter(|_| released_us < over_us),
            });
        }
    }

    /// Sends a request until there is a reply. Returns the time of the last attempt. A repeated
    /// token is the same request.
    fn ask<T: FromRedisValue>(&mut self, command: &redis::Cmd, key: &str) -> (u64, Option<T>) {
        let start = Instant::now();
        // The library takes the number of keys for the key.
        let route = Route::new(slot_of(key.as_bytes()), SlotAddr::Master);
        let node = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        loop {
            let asked_us = now_us();
            let reply = self.connection.route_command(command, node.clone());
            match reply.and_then(|value| Ok(T::from_redis_value(value)?)) {
                Ok(answer) => return (asked_us, Some(answer)),
                Err(error) => self.note(&error),
            }
            if start.elapsed() > PATIENCE {
                return (asked_us, None);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn note(&mut self, error: &RedisError) {
        let code = match error.code() {
            Some(code) => code.to_string(),
            None => {
                // Applications reconnect as well when a connection has ended.
                if let Ok(connection) = cluster_connection(self.addresses) {
                    self.connection = connection;
                }
                "connection".into()
            }
        };
        *self.journal.errors.entry(code).or_default() += 1;
    }
}
