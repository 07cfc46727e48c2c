//! A random history of some locks. It is seeded, so that a failure can be repeated.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::client::{Client, Reply};
use super::server::wait_for;

/// A command as its arguments.
pub type Command = Vec<Vec<u8>>;

/// Every ttl is either shorter than this, to expire during the workload, or longer than `LONG_MS`,
/// to outlast the test.
const SHORT_MS: i64 = 6;
const LONG_MS: i64 = 100_000;

/// The number of commands per pipeline.
const PIPELINED: usize = 500;

/// Statistics of the replies, which show that the workload had an effect.
#[derive(Debug, Default)]
pub struct Tally {
    pub granted: usize,
    pub refused: usize,
    pub done: usize,
    /// Transactions and scripts.
    pub together: usize,
    pub errors: usize,
    pub largest_fence: i64,
}

impl Tally {
    /// Fails the test if the workload did too little to prove anything.
    #[track_caller]
    pub fn assert_rich(&self, ops: usize) {
        for count in [self.granted, self.refused, self.done, self.together] {
            assert!(count > ops / 50, "{self:?} of {ops}");
        }
    }

    fn count(&mut self, reply: &Reply) {
        match reply {
            Reply::Int(fence) if *fence > 1 => {
                self.granted += 1;
                self.largest_fence = self.largest_fence.max(*fence);
            }
            Reply::Int(1) => self.done += 1,
            Reply::Nil | Reply::Int(0) => self.refused += 1,
            Reply::Array(made) if matches!(made[..], [Reply::Bulk(_), Reply::Int(_)]) => {
                self.count(&made[1]);
            }
            Reply::Array(items) => {
                self.together += 1;
                items.iter().for_each(|item| self.count(item));
            }
            Reply::Error(error) => {
                // Keys of another type and names that RENAME does not find are expected.
                let expected = ["WRONGTYPE", "ERR no such key", "DEADLOCK"];
                assert!(expected.iter().any(|e| error.starts_with(e)), "{error}");
                self.errors += 1;
            }
            _ => {}
        }
    }
}

/// Sends about `ops` random commands, and waits until no deadline changes the state any more.
#[track_caller]
pub fn run(c: &mut Client, seed: u64, ops: usize) -> Tally {
    let tally = play(c, seed, ops);
    settle(c);
    tally
}

/// Sends about `ops` random commands.
#[track_caller]
pub fn play(c: &mut Client, seed: u64, ops: usize) -> Tally {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut tally = Tally::default();
    let mut sent = 0;
    while sent < ops {
        let mut commands = Vec::new();
        while commands.len() < PIPELINED.min(ops - sent) {
            extend(&mut rng, &mut commands);
        }
        sent += commands.len();
        for reply in c.pipeline(&commands) {
            tally.count(&reply);
        }
    }
    tally
}

/// Waits until the server has deleted every key with a short ttl, so that the state is stable. The
/// next command restores the ttl of a lock after PERSIST.
#[track_caller]
pub fn settle(c: &mut Client) {
    wait_for("the short ttls to end", || {
        let keys = c.call("KEYS *");
        let all_long = keys.items().iter().all(|name| {
            let ttl = c.send(&[b"PTTL".as_slice(), name.as_bytes()]).as_int();
            let is_lock =
                c.send(&[b"TYPE".as_slice(), name.as_bytes()]) == Reply::Simple("redislock".into());
            if ttl == -1 && is_lock {
                c.send(&[
                    b"LOCK.RELEASE".as_slice(),
                    name.as_bytes(),
                    b"nobody of the workload",
                ]);
            }
            ttl > LONG_MS / 2 || (ttl == -1 && !is_lock)
        });
        // DBSIZE counts expired keys that are not deleted yet.
        let all_seen = c.int("DBSIZE") == i64::try_from(keys.items().len()).unwrap();
        (all_long && all_seen).then_some(())
    });
}

fn extend(rng: &mut StdRng, commands: &mut Vec<Command>) {
    match rng.random_range(0..100) {
        0..8 => {
            commands.push(words("MULTI"));
            let inside = rng.random_range(1..5);
            commands.extend((0..inside).map(|_| words(&line(rng))));
            commands.push(words("EXEC"));
        }
        8..12 => {
            let (one, two) = (line(rng), line(rng));
            commands.push(script(&[&one, &two]));
        }
        _ => commands.push(words(&line(rng))),
    }
}

/// A script that runs lines one after the other and returns all replies.
pub fn script(lines: &[&str]) -> Command {
    let mut calls = Vec::new();
    for line in lines {
        let args: Vec<_> = line.split(' ').map(|word| format!("'{word}'")).collect();
        // A nil would end the array of the replies.
        calls.push(format!("redis.pcall({}) or 0", args.join(",")));
    }
    let script = format!("return {{{}}}", calls.join(","));
    vec![b"EVAL".to_vec(), script.into_bytes(), b"0".to_vec()]
}

fn line(rng: &mut StdRng) -> String {
    let key = |rng: &mut StdRng| format!("k{}", rng.random_range(0..6));
    let (k, t) = (key(rng), format!("t{}", rng.random_range(0..5)));
    let ttl = ttl(rng);
    match rng.random_range(0..1000) {
        0..70 => format!("LOCK.ACQUIRE {k} {t} {ttl}"),
        70..140 => format!(
            "LOCK.ACQUIRE {k} {t} {ttl} LIMIT {}",
            rng.random_range(1..5)
        ),
        140..380 => format!("RWLOCK.RLOCK {k} {t} {ttl}"),
        380..480 => format!("RWLOCK.WLOCK {k} {t} {ttl}"),
        480..500 => format!("RWLOCK.RLOCK {k} * {ttl}"),
        500..640 => format!("LOCK.RELEASE {k} {t}"),
        640..680 => format!("LOCK.RELEASE {k} {t} ATLEAST {ttl}"),
        680..840 => format!("LOCK.RENEW {k} {t} {ttl}"),
        840..910 => format!("PEXPIRE {k} {ttl}"),
        910..940 => format!("PERSIST {k}"),
        940..960 => format!("DEL {k}"),
        960..970 => format!("UNLINK {k}"),
        970..985 => format!("RENAME {k} {}", key(rng)),
        985..997 => format!("SET {k} text PX {ttl}"),
        _ => "FLUSHDB".to_string(),
    }
}

fn ttl(rng: &mut StdRng) -> i64 {
    if rng.random_range(0..5) == 0 {
        rng.random_range(1..SHORT_MS)
    } else {
        rng.random_range(LONG_MS..10 * LONG_MS)
    }
}

/// A line as the arguments of a command.
pub fn words(line: &str) -> Command {
    let words = line.split_whitespace();
    words.map(|word| word.as_bytes().to_vec()).collect()
}
