//! Many clients with KEEP, BLOCK, NOTIFY, RELEASE and lost connections on few keys, and a judge: never
//! two exclusive holders, nobody passed by a later one while its place stands, nothing left at the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::fixture::{figure, Subscriber};
use crate::harness::{figure as report, now_us, scale, wait_for, Client, Kind, Reply, Server};

on_every_server![a_storm_of_places_breaks_no_rule];

const KEYS: [&str; 2] = ["k0", "k1"];
const WORKERS: usize = 8;
/// Longer than a test machine ever stalls.
const TTL_MS: u64 = 30_000;

/// A hold that a client knows of.
struct Granted {
    key: usize,
    token: String,
    is_shared: bool,
    /// When its token asked for the first time.
    asked_us: i64,
    fence: i64,
}

impl Granted {
    /// Whether it was granted although one ahead of it was seen later still.
    fn has_passed(&self, last_seen_us: i64, is_shared: bool) -> bool {
        // A fence is the instant of its grant. A reader may enter beside an absent reader.
        last_seen_us > self.fence + 3_000 && !(is_shared && self.is_shared)
    }
}

/// A queue as it was at an instant.
struct Snapshot {
    key: usize,
    /// By the server's clock, before the queue was read.
    at_us: i64,
    /// The same after it was read.
    read_us: i64,
    /// The tokens in their order, each with whether it asks for a share.
    queue: Vec<(String, bool)>,
}

#[derive(Default)]
struct Judge {
    granted: Mutex<Vec<Granted>>,
    snapshots: Mutex<Vec<Snapshot>>,
    /// How many clients know that they hold each key exclusively, or share it.
    exclusive: [AtomicI64; KEYS.len()],
    shared: [AtomicI64; KEYS.len()],
    breaches: Mutex<Vec<String>>,
    is_over: AtomicBool,
    asked: AtomicUsize,
}

impl Judge {
    fn breach(&self, text: String) {
        self.breaches.lock().unwrap().push(text);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// A client has learned that it holds.
    fn enters(&self, key: usize, is_shared: bool) {
        let (own, other) = match is_shared {
            true => (&self.shared[key], &self.exclusive[key]),
            false => (&self.exclusive[key], &self.shared[key]),
        };
        let before = own.fetch_add(1, Ordering::SeqCst);
        let is_beside = other.load(Ordering::SeqCst) > 0 || (!is_shared && before > 0);
        if is_beside {
            self.breach(format!("two holders of {}", KEYS[key]));
        }
    }

    /// A client is about to release.
    fn leaves(&self, key: usize, is_shared: bool) {
        let own = match is_shared {
            true => &self.shared[key],
            false => &self.exclusive[key],
        };
        own.fetch_sub(1, Ordering::SeqCst);
    }

    /// Nobody was passed by a later one while its place stood. Answers how many pairs were compared.
    fn nobody_was_passed(&self) -> usize {
        let granted = self.granted.lock().unwrap();
        let snapshots = self.snapshots.lock().unwrap();
        // When each place was seen first and last, and its mode. A token has one place in all.
        let mut seen: BTreeMap<(usize, &str), (i64, i64, bool)> = BTreeMap::new();
        for snapshot in snapshots.iter() {
            for (token, is_shared) in &snapshot.queue {
                let first = (snapshot.read_us, snapshot.at_us, *is_shared);
                let times = seen.entry((snapshot.key, token)).or_insert(first);
                times.1 = snapshot.at_us;
            }
        }
        let fences: BTreeMap<(usize, &str), &Granted> = granted
            .iter()
            .map(|hold| ((hold.key, hold.token.as_str()), hold))
            .collect();
        let mut compared = 0;
        for snapshot in snapshots.iter() {
            for (at, (later, _)) in snapshot.queue.iter().enumerate() {
                let Some(hold) = fences.get(&(snapshot.key, later.as_str())) else {
                    continue;
                };
                for (earlier, is_shared) in &snapshot.queue[..at] {
                    compared += 1;
                    let (_, last_us, _) = seen[&(snapshot.key, earlier.as_str())];
                    if hold.has_passed(last_us, *is_shared) {
                        self.breach(format!("{later} has passed {earlier}, see {last_us}"));
                    }
                }
            }
        }
        // One that was granted at once was in no queue.
        for hold in granted.iter() {
            for ((key, earlier), (first_us, last_us, is_shared)) in &seen {
                if *key == hold.key && *first_us < hold.asked_us && *earlier != hold.token {
                    compared += 1;
                    if hold.has_passed(*last_us, *is_shared) {
                        self.breach(format!("{} came later than {earlier}", hold.token));
                    }
                }
            }
        }
        compared
    }
}

/// A client of the storm. Each wait has a token of its own, which is used for nothing else.
struct Worker<'a> {
    judge: &'a Judge,
    server: &'a Server,
    number: usize,
    rng: StdRng,
    c: Client,
    sub: Subscriber,
    channel: String,
}

impl Worker<'_> {
    fn run(&mut self) {
        let mut wait = 0;
        while !self.judge.is_over() {
            wait += 1;
            self.wait_once(wait);
        }
    }

    fn wait_once(&mut self, wait: usize) {
        let key = self.rng.random_range(0..KEYS.len());
        let is_shared = self.rng.random_bool(0.3);
        let token = format!("w{}:{wait}", self.number);
        let command = if is_shared {
            "RWLOCK.RLOCK"
        } else {
            "LOCK.ACQUIRE"
        };
        let asked_us = i64::try_from(now_us()).unwrap();
        let ask = format!("{command} {} {token} {TTL_MS}", KEYS[key]);
        // A token asks a few times within its grace, and then gives up in one way or another.
        for _ in 0..self.rng.random_range(1..8) {
            self.judge.asked.fetch_add(1, Ordering::Relaxed);
            let fence = match self.rng.random_range(0..10) {
                0..4 => fence_of(self.c.call(&format!("{ask} KEEP 2000"))),
                4..6 => {
                    let ms = self.rng.random_range(1..20);
                    fence_of(self.c.call(&format!("{ask} BLOCK {ms} KEEP 2000")))
                }
                6 | 7 => self.notified(&ask, KEYS[key], &token),
                8 => self.unheard(&ask),
                _ => self.killed(&ask),
            };
            if let Some(fence) = fence {
                self.hold(key, is_shared, token, [asked_us, fence]);
                return;
            }
            if self.rng.random_bool(0.3) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        self.give_up(key, is_shared, &ask, &token, asked_us);
    }

    /// Waits by the channel for a while, and gives it up by asking again.
    fn notified(&mut self, ask: &str, key: &str, token: &str) -> Option<i64> {
        let reply = self
            .c
            .call(&format!("{ask} NOTIFY 30 {} KEEP 2000", self.channel));
        if let Some(fence) = fence_of(reply) {
            return Some(fence);
        }
        // Its own message: the fence or the timeout. Messages of former waits come before it.
        let ending = format!(" {} {key} {token}", key.len());
        loop {
            let text = self.sub.text();
            let Some(head) = text.strip_suffix(&ending) else {
                continue;
            };
            let (event, fence) = head.split_once(' ').unwrap();
            return match event {
                "granted" => Some(fence.parse().unwrap()),
                "timeout" => None,
                _ => {
                    self.judge.breach(text);
                    None
                }
            };
        }
    }

    fn unheard(&mut self, ask: &str) -> Option<i64> {
        fence_of(self.c.call(&format!("{ask} NOTIFY 20 nobody KEEP 2000")))
    }

    /// Is lost while it waits. It asks on another connection afterwards.
    fn killed(&mut self, ask: &str) -> Option<i64> {
        let mut raw = self.server.raw();
        raw.send(&format!("{ask} BLOCK 0 KEEP 2000"));
        if self.rng.random_bool(0.5) {
            thread::sleep(Duration::from_millis(1));
        }
        if self.rng.random_bool(0.5) {
            self.c.call(&format!("CLIENT KILL ID {}", raw.id));
        }
        // The grant may have come before.
        raw.leave();
        let line = raw.line()?;
        line.strip_prefix(':')?.parse().ok()
    }

    fn hold(&mut self, key: usize, is_shared: bool, token: String, times: [i64; 2]) {
        let [asked_us, fence] = times;
        self.judge.enters(key, is_shared);
        if self.rng.random_bool(0.5) {
            thread::sleep(Duration::from_micros(self.rng.random_range(0..2_000)));
        }
        self.judge.leaves(key, is_shared);
        let ended = self.c.int(&format!("LOCK.RELEASE {} {token}", KEYS[key]));
        if ended != 1 {
            self.judge.breach(format!("{token} held nothing any more"));
        }
        self.judge.granted.lock().unwrap().push(Granted {
            key,
            token,
            is_shared,
            asked_us,
            fence,
        });
    }

    /// Gives the place up, or leaves it to its grace. A hold that it does not know of ends here.
    fn give_up(&mut self, key: usize, is_shared: bool, ask: &str, token: &str, asked_us: i64) {
        let release = format!("LOCK.RELEASE {} {token}", KEYS[key]);
        match self.rng.random_range(0..3) {
            0 => drop(self.c.call(&release)),
            // Without KEEP the place ends with the request.
            1 => {
                if let Some(fence) = fence_of(self.c.call(ask)) {
                    self.hold(key, is_shared, token.into(), [asked_us, fence]);
                    return;
                }
            }
            _ => drop(self.c.call(&format!("{ask} KEEP 5"))),
        }
        // A grant that was on its way to a lost connection is known to nobody but the server.
        wait_for("the end of its wait", || {
            self.c.call(&release);
            let info = self.c.call(&format!("LOCK.INFO {}", KEYS[key]));
            let is_there = info != Reply::Nil
                && [info.field("holders"), info.field("waiters")]
                    .iter()
                    .flat_map(|parties| parties.items().to_vec())
                    .any(|party| party.field("token") == Reply::from(token));
            (!is_there).then_some(())
        });
    }
}

fn fence_of(reply: Reply) -> Option<i64> {
    match reply {
        Reply::Int(fence) => Some(fence),
        Reply::Nil => None,
        Reply::Simple(queued) if queued == "QUEUED" => None,
        other => panic!("{other:?}"),
    }
}

fn look_on(judge: &Judge, c: &mut Client) {
    while !judge.is_over() {
        for (key, name) in KEYS.iter().enumerate() {
            let at_us = i64::try_from(now_us()).unwrap();
            let info = c.call(&format!("LOCK.INFO {name}"));
            let read_us = i64::try_from(now_us()).unwrap();
            if info == Reply::Nil {
                continue;
            }
            let queue = info.field("waiters");
            let queue = queue.items().iter().map(|waiter| {
                let token = String::from_utf8_lossy(waiter.field("token").as_bytes()).into_owned();
                (token, waiter.field("mode") == "shared".into())
            });
            let snapshot = Snapshot {
                key,
                at_us,
                read_us,
                queue: queue.collect(),
            };
            judge.snapshots.lock().unwrap().push(snapshot);
        }
    }
}

fn a_storm_of_places_breaks_no_rule(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // The second storm finds all that the server keeps for good.
    let mut memory = Vec::new();
    let seed = now_us();
    for round in 0..2 {
        let (judge, compared) = storm(&server, seed + round, 1_500 * scale() as u64);
        let breaches = judge.breaches.lock().unwrap();
        assert!(breaches.is_empty(), "seed {seed}: {breaches:?}");
        let granted = judge.granted.lock().unwrap().len();
        assert!(granted > 100 && compared > 100, "{granted} {compared}");
        nothing_is_left(&server, &mut c);
        memory.push(c.info("used_memory").parse::<i64>().unwrap());
        let asked = judge.asked.load(Ordering::Relaxed);
        report(
            kind,
            &format!("{asked} requests, {granted} holds, {compared} pairs compared, nobody passed"),
        );
    }
    let more = memory[1] - memory[0];
    assert!(more < 200_000, "{more} bytes more: {memory:?}");
}

fn storm(server: &Server, seed: u64, ms: u64) -> (Judge, usize) {
    let judge = Judge::default();
    thread::scope(|scope| {
        for number in 0..WORKERS {
            let channel = format!("c{number}");
            let mut worker = Worker {
                judge: &judge,
                server,
                number,
                rng: StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(number as u64)),
                c: server.client(),
                sub: Subscriber::new(server, &format!("SUBSCRIBE {channel}")),
                channel,
            };
            scope.spawn(move || worker.run());
        }
        let mut onlooker = server.client();
        let judge = &judge;
        scope.spawn(move || look_on(judge, &mut onlooker));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(ms) {
            thread::sleep(Duration::from_millis(10));
        }
        judge.is_over.store(true, Ordering::SeqCst);
    });
    let compared = judge.nobody_was_passed();
    (judge, compared)
}

fn nothing_is_left(server: &Server, c: &mut Client) {
    // Bounded by the longest grace.
    let start = Instant::now();
    wait_for("all places to end", || {
        (figure(c, "waiters") == 0).then_some(())
    });
    assert!(start.elapsed() < Duration::from_secs(4));
    assert_eq!(figure(c, "waited_keys"), 0);
    assert_eq!(figure(c, "held_keys"), 0);
    assert_eq!(c.int("DBSIZE"), 0);
    assert_eq!(server.blocked_clients(), 0);
    wait_for("the clients to be gone", || {
        (c.info("connected_clients") == "1").then_some(())
    });
}
