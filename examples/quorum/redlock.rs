//! The Redlock algorithm over independent servers, with the commands of this module.
//!
//! A quorum is for those who cannot bear that asynchronous replication loses a lock with its
//! primary: five servers that know nothing of each other, of which any three are enough. It costs
//! five times the commands, and needs what the algorithm needs: clocks that run at about the same
//! rate, clients that stop when their lease is over, and servers that do not forget. A server that
//! comes back without its data must stay away for a ttl, or write with `appendfsync always`.
//!
//! What the commands make simpler than it is with `SET NX PX` and scripts: a release ends only the
//! token's own hold, and a renewal never takes a lost hold again, so a vote that was renewed is one
//! that was held all the time. There is no waiting in line here: BLOCK on several servers would
//! have two clients each at the head of some queues. Who is refused tries again after a random
//! time.
//!
//! # What is the fence of a quorum?
//!
//! Each server gives its own, and **no single number made of them is safe**. Two majorities may
//! have only one server in common, so the largest fence of the next holder may come from other
//! servers, and be smaller: with one clock an hour ahead the first holder has that server's fence,
//! and the next one, without that server, none as large. Sum, median and minimum fail alike. While
//! all clocks agree to within the time between two grants the largest does rise, but then it is the
//! clocks that are trusted, and not the fence.
//!
//! What is safe is the **vector** of the fences, one for each server that gave its vote, and a
//! resource that compares it server by server ([`Gate`]). Any two majorities share a server, and
//! there the later holder's fence is larger; on every other server that both have it is larger,
//! too. So the resource remembers the largest fence of each server, and refuses a write that is
//! behind on any. If it can remember only one number, take that number from one place: from one
//! server, or from the resource's own database, and let the quorum guard no more than the
//! efficiency.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, FromRedisValue, RedisResult};

/// One client of the quorum.
pub struct Redlock {
    servers: Vec<Server>,
}

/// A lock that a majority has granted.
#[derive(Clone, Debug)]
pub struct Lease {
    pub key: String,
    /// Another one for each attempt, so that what a server does late, for an attempt that was given
    /// up, harms no other.
    pub token: String,
    /// The holder must have stopped by then.
    pub valid_until: Instant,
    pub fences: Fences,
}

/// The fence of each server that gave its vote, by the server's number.
pub type Fences = BTreeMap<usize, i64>;

/// What guards a resource: it refuses whoever is late.
#[derive(Debug, Default)]
pub struct Gate {
    largest: Fences,
}

impl Gate {
    /// Whether a write with these fences may pass. They must be those of a majority.
    pub fn admits(&mut self, fences: &Fences) -> bool {
        let seen = |server| self.largest.get(server).copied().unwrap_or(0);
        if fences.iter().any(|(server, fence)| *fence < seen(server)) {
            return false;
        }
        self.largest.extend(fences);
        true
    }
}

impl Redlock {
    /// A client of the servers at these addresses. `timeout` is for each request to each server,
    /// and small beside any ttl: a server that does not answer must not cost the lease.
    pub fn new<A: AsRef<str>>(addresses: &[A], timeout: Duration) -> RedisResult<Self> {
        let server = |address: &A| {
            Ok(Server {
                client: Client::open(format!("redis://{}/", address.as_ref()))?,
                connection: None,
                timeout,
            })
        };
        let servers = addresses.iter().map(server).collect::<RedisResult<_>>()?;
        Ok(Self { servers })
    }

    /// Tries once. `token` must not have been used before, not even for an attempt that failed.
    pub fn acquire(&mut self, key: &str, token: &str, ttl: Duration) -> Option<Lease> {
        let start = Instant::now();
        let command = lock_command("LOCK.ACQUIRE", key, token, Some(ttl));
        let votes = self.ask_all::<Option<i64>>(&command);
        let granted = |(server, vote): (usize, Option<Option<i64>>)| Some((server, vote??));
        let fences: Fences = votes.into_iter().enumerate().filter_map(granted).collect();
        let lease = Lease {
            key: key.into(),
            token: token.into(),
            valid_until: start + ttl - drift(ttl),
            fences,
        };
        let is_held = lease.fences.len() >= self.majority() && lease.is_valid();
        if !is_held {
            // Everywhere: a server that has not answered may have granted.
            self.release(&lease);
        }
        is_held.then_some(lease)
    }

    /// Sets the deadline anew, on a majority or not at all. Without a majority the lock is lost.
    pub fn extend(&mut self, lease: &mut Lease, ttl: Duration) -> bool {
        let start = Instant::now();
        let renew = lock_command("LOCK.RENEW", &lease.key, &lease.token, Some(ttl));
        let votes = self.ask_all::<bool>(&renew);
        let renewed = votes.into_iter().filter(|vote| *vote == Some(true)).count();
        let valid_until = start + ttl - drift(ttl);
        // Whoever was late may have lost it in between.
        if renewed < self.majority() || !lease.is_valid() || Instant::now() >= valid_until {
            self.release(lease);
            return false;
        }
        lease.valid_until = valid_until;
        true
    }

    /// Gives the lock up, on every server.
    pub fn release(&mut self, lease: &Lease) {
        let release = lock_command("LOCK.RELEASE", &lease.key, &lease.token, None);
        self.ask_all::<bool>(&release);
    }

    fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    /// Asks all servers at once; `None` for who has not answered in time, or with an error.
    fn ask_all<T: FromRedisValue + Send>(&mut self, command: &Cmd) -> Vec<Option<T>> {
        thread::scope(|scope| {
            let servers = self.servers.iter_mut();
            let asked: Vec<_> = servers
                .map(|server| scope.spawn(|| server.ask(command).ok()))
                .collect();
            let answers = asked.into_iter().map(|one| one.join().ok().flatten());
            answers.collect()
        })
    }
}

impl Lease {
    /// Whether the lock is still held for sure. To ask before each write, and to add a fence to it,
    /// for time passes after the answer.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.valid_until
    }
}

struct Server {
    client: Client,
    connection: Option<Connection>,
    timeout: Duration,
}

impl Server {
    fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = command.query(&mut connection)?;
        // A connection that failed is not used again: its reply may still come.
        self.connection = Some(connection);
        Ok(answer)
    }

    fn connect(&self) -> RedisResult<Connection> {
        let connection = self.client.get_connection_with_timeout(self.timeout)?;
        connection.set_read_timeout(Some(self.timeout))?;
        connection.set_write_timeout(Some(self.timeout))?;
        Ok(connection)
    }
}

fn lock_command(name: &str, key: &str, token: &str, ttl: Option<Duration>) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key).arg(token);
    if let Some(ttl) = ttl {
        command.arg(ttl.as_millis() as u64);
    }
    command
}

/// How much faster the servers' clocks may run than ours, and a millisecond or two for their
/// rounding.
fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}
