//! The clients of a round. Each takes locks at the server which it believes is the primary, with one
//! token for each piece of work.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::RngExt;

use super::journal::Journal;
use super::plan::Plan;
use super::resources::Resources;
use crate::harness::{Client, CutLink, Reply};

pub const CLIENTS: u64 = 12;
pub const KEYS: usize = 5;
/// A client follows so many redirections.
const REDIRECTIONS: usize = 4;

/// The keys of a round.
pub struct Names {
    /// For them clients contend from the beginning on.
    pub near: Vec<String>,
    /// Nobody has held them before grants are lost.
    late: Vec<String>,
    /// Nobody asks for it before the failover.
    pub fresh: String,
}

/// What the clients of a round share.
pub struct Scene<'p> {
    pub names: Names,
    pub plan: &'p Plan,
    pub journal: &'p Journal,
    pub is_over: AtomicBool,
    /// Grants from now on are lost. Clients turn to locks that nobody has held.
    pub is_losing: AtomicBool,
    resources: Resources,
    /// Here adapters find the primary.
    pub way: CutLink,
    view: Mutex<View>,
}

impl Names {
    pub fn new(name: impl Fn(&str) -> String) -> Self {
        let all = |of: &str| (0..KEYS).map(|n| name(&format!("{of}{n}"))).collect();
        Self {
            near: all("k"),
            late: all("late"),
            fresh: name("fresh"),
        }
    }
}

/// Which servers are the primary, as clients hear of it.
#[derive(Clone, Copy)]
struct View {
    old: u16,
    new: u16,
    since: Instant,
}

/// A connection whose requests and replies are recorded.
pub struct Caller<'p> {
    who: String,
    journal: &'p Journal,
    /// Without a reply for so long, it gives up the connection.
    patience: Duration,
    connection: Option<(u16, Client)>,
    /// Whether the last request left.
    has_sent: bool,
}

pub struct Worker<'s, 'p> {
    scene: &'s Scene<'p>,
    number: u64,
    random: StdRng,
    /// How long after the others it hears of a new primary.
    late: Duration,
    /// Where keys are that were not at the primary, and since when.
    moved: BTreeMap<String, (u16, Instant)>,
    caller: Caller<'p>,
}

impl<'p> Scene<'p> {
    pub fn new(plan: &'p Plan, journal: &'p Journal, primary: u16, names: Names) -> Self {
        Self {
            names,
            plan,
            journal,
            is_over: AtomicBool::new(false),
            is_losing: AtomicBool::new(false),
            resources: Resources::default(),
            way: CutLink::to(primary),
            view: Mutex::new(View {
                old: primary,
                new: primary,
                since: Instant::now(),
            }),
        }
    }

    pub fn move_to(&self, port: u16) {
        self.way.turn_to(port);
        let mut view = self.view.lock().unwrap();
        *view = View {
            old: view.new,
            new: port,
            since: Instant::now(),
        };
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub fn primary(&self) -> u16 {
        self.view.lock().unwrap().new
    }
}

impl<'p> Caller<'p> {
    pub fn new(who: String, journal: &'p Journal, patience: Duration) -> Self {
        Self {
            who,
            journal,
            patience,
            connection: None,
            has_sent: false,
        }
    }

    /// The reply. `None` if there is no connection, or no reply in time.
    pub fn ask(&mut self, port: u16, line: &str) -> Option<Reply> {
        self.has_sent = false;
        self.connect(port)?;
        let (_, client) = self.connection.as_mut()?;
        self.journal.note(&self.who, port, "send", line);
        self.has_sent = true;
        let reply = client.try_call(line);
        let at_us = self.journal.now_us();
        let text = match &reply {
            Ok(Reply::Int(n)) => n.to_string(),
            Ok(Reply::Nil) => "nil".into(),
            Ok(Reply::Error(error)) => error.clone(),
            Ok(other) => format!("{other:?}"),
            Err(_) => "lost".into(),
        };
        self.journal.note_at(at_us, &self.who, port, "reply", &text);
        if reply.is_err() {
            self.connection = None;
        }
        reply.ok()
    }

    fn connect(&mut self, port: u16) -> Option<()> {
        self.connection.take_if(|(to, _)| *to != port);
        if self.connection.is_none() {
            self.connection = Some((port, Client::try_connect_within(port, self.patience)?));
        }
        Some(())
    }

    /// The next request is for a slot that is on its way to this node.
    fn announce(&mut self, port: u16) {
        self.connect(port);
        if let Some((_, client)) = &mut self.connection {
            client.try_call("ASKING").ok();
        }
    }

    fn note(&self, what: &str, text: &str) {
        let port = self.connection.as_ref().map_or(0, |(port, _)| *port);
        self.journal.note(&self.who, port, what, text);
    }
}

/// Where an error sends a client, and whether to stay.
fn redirection(reply: Option<&Reply>) -> Option<(bool, u16)> {
    let Some(Reply::Error(error)) = reply else {
        return None;
    };
    let mut words = error.split(' ');
    let is_moved = match words.next()? {
        "MOVED" => true,
        "ASK" => false,
        _ => return None,
    };
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    Some((is_moved, port.parse().ok()?))
}

impl<'s, 'p> Worker<'s, 'p> {
    pub fn new(scene: &'s Scene<'p>, number: u64) -> Self {
        let mut random = scene.plan.random(1 + number);
        let late_ms = match number % 4 {
            0 | 1 => 0,
            // They stay at an old primary that is cut off.
            _ if scene.plan.is_old_served() => u64::MAX,
            _ => random.random_range(0..700),
        };
        let patience = Duration::from_millis(random.random_range(300..1_500));
        Self {
            scene,
            number,
            random,
            late: Duration::from_millis(late_ms),
            moved: BTreeMap::new(),
            caller: Caller::new(format!("c{number}"), scene.journal, patience),
        }
    }

    pub fn live(mut self) {
        for work in 0.. {
            if self.scene.is_over() {
                return;
            }
            self.work(&format!("c{}-{work}", self.number));
        }
    }

    fn ask(&mut self, line: &str) -> Option<Reply> {
        let view = *self.scene.view.lock().unwrap();
        let has_heard = view.since.elapsed() >= self.late;
        let primary = if has_heard { view.new } else { view.old };
        let key = line.split(' ').nth(1).expect("a key");
        let moved = self.moved.get(key).filter(|(_, at)| *at > view.since);
        let mut reply = self
            .caller
            .ask(moved.map_or(primary, |(port, _)| *port), line);
        for _ in 0..REDIRECTIONS {
            let Some((is_moved, port)) = redirection(reply.as_ref()) else {
                break;
            };
            if is_moved {
                self.moved.insert(key.into(), (port, Instant::now()));
            } else {
                self.caller.announce(port);
            }
            reply = self.caller.ask(port, line);
        }
        match &reply {
            Some(Reply::Int(_) | Reply::Nil) => return reply,
            Some(Reply::Error(error)) if error.starts_with("READONLY") => {
                self.late = Duration::ZERO;
            }
            Some(_) => {}
            None => drop(self.moved.remove(key)),
        }
        self.pause(5..20);
        reply
    }

    fn pause(&mut self, ms: std::ops::Range<u64>) {
        sleep(Duration::from_millis(self.random.random_range(ms)));
    }

    fn work(&mut self, token: &str) {
        let longest_ms = self.scene.plan.max_ttl_ms;
        let is_losing = self.scene.is_losing.load(Ordering::Relaxed);
        let names = &self.scene.names;
        let keys = if is_losing && self.random.random_range(0..4) > 0 {
            &names.late
        } else {
            &names.near
        };
        let key = keys[self.random.random_range(0..KEYS)].clone();
        let is_shared = self.random.random_range(0..3) == 0;
        let command = match is_shared {
            true => "RWLOCK.RLOCK",
            false => "LOCK.ACQUIRE",
        };
        let way = self.random.random_range(0..8);
        let ttl_ms = match way {
            0..=3 => longest_ms,
            _ => self.random.random_range(longest_ms / 2..=longest_ms),
        };
        let block_ms = self.random.random_range(50..longest_ms / 2);
        let line = format!("{command} {key} {token} {ttl_ms} BLOCK {block_ms}");
        let mut sent = Instant::now();
        let mut reply = self.ask(&line);
        if reply.is_none() && self.random.random() {
            // It may have been granted, and then it is the same grant.
            sent = Instant::now();
            reply = self.ask(&line);
        }
        let Some(Reply::Int(fence)) = reply else {
            return;
        };
        let has_waited = sent.elapsed() > Duration::from_millis(ttl_ms / 10);
        let renew = format!("LOCK.RENEW {key} {token} {ttl_ms}");
        if has_waited && self.ask(&renew) != Some(Reply::Int(1)) {
            return;
        }
        let increment = (!is_shared).then(|| self.begin(&key, token, fence));
        let is_left = self.hold(way, &key, token, ttl_ms, is_shared);
        if let Some(Some(value)) = increment {
            self.end(&key, fence, value);
        }
        if !is_left {
            self.ask(&format!("LOCK.RELEASE {key} {token}"));
            self.come_late(&key, token);
        }
    }

    /// Sometimes it does not know that its hold has ended.
    fn come_late(&mut self, key: &str, token: &str) {
        let late = match self.random.random_range(0..9) {
            0 => format!("LOCK.CHECK {key} {token}"),
            1 => format!("LOCK.RELEASE {key} {token}"),
            2 => {
                format!("LOCK.EXEC {key} {token} INCR {key}:late")
            }
            _ => return,
        };
        self.ask(&late);
    }

    /// Begins to add one to what the lock protects. Answers the number that is to be written back,
    /// unless it is in the server, which adds it at once.
    fn begin(&mut self, key: &str, token: &str, fence: i64) -> Option<u64> {
        let plan = self.scene.plan;
        // What an old primary still counts is lost.
        let is_lost = plan.fault.loses() || plan.is_old_served();
        if !is_lost && self.random.random::<bool>() {
            self.caller.note("op", &format!("increment counter:{key}"));
            let line = format!("LOCK.EXEC {key} {token} INCR {key}:counter");
            let done = match self.ask(&line) {
                Some(Reply::Int(value)) => (value - 1).to_string(),
                Some(_) => "none".into(),
                None if self.caller.has_sent => "unknown".into(),
                None => "none".into(),
            };
            self.caller.note("done", &done);
            return None;
        }
        self.caller.note("op", &format!("increment fenced:{key}"));
        let value = self.scene.resources.read(key, fence);
        if value.is_none() {
            self.caller.note("done", "rejected");
        }
        value
    }

    /// Writes the number back that [`Self::begin`] has read.
    fn end(&mut self, key: &str, fence: i64, value: u64) {
        match self.scene.resources.write(key, fence, value + 1) {
            true => self.caller.note("done", &value.to_string()),
            false => self.caller.note("done", "rejected"),
        }
    }

    /// Holds the lock for a while. Answers whether it is left as it is.
    fn hold(&mut self, way: u32, key: &str, token: &str, ttl_ms: u64, is_shared: bool) -> bool {
        match way {
            0 | 1 => self.keep(key, token),
            // It is gone, or stands still.
            2 | 3 => {
                let longest_ms = if way == 3 { 2 * ttl_ms } else { 200 };
                self.pause(20..longest_ms);
                return true;
            }
            4 => {
                self.pause(5..100);
                return self.ask(&format!("LOCK.CHECK {key} {token}")) == Some(Reply::Nil);
            }
            5 | 6 if !is_shared => self.read_and_write_again(key, token, ttl_ms),
            _ => self.pause(1..60),
        }
        false
    }

    /// Becomes a reader, preferably when that may be lost, and then a writer again: only if nobody
    /// reads meanwhile.
    fn read_and_write_again(&mut self, key: &str, token: &str, ttl_ms: u64) {
        let start = Instant::now();
        let patience = Duration::from_millis(self.random.random_range(10..ttl_ms / 2));
        while !self.scene.is_losing.load(Ordering::Relaxed) && start.elapsed() < patience {
            self.pause(5..10);
        }
        self.pause(1..100);
        self.ask(&format!("RWLOCK.RLOCK {key} {token} {ttl_ms}"));
        self.pause(5..500);
        self.ask(&format!("LOCK.ACQUIRE {key} {token} {ttl_ms} BLOCK 100"));
        self.pause(5..200);
    }

    /// Renews the lock for a while, at a quarter of its lease.
    fn keep(&mut self, key: &str, token: &str) {
        let longest_ms = self.scene.plan.max_ttl_ms;
        let start = Instant::now();
        let goal = Duration::from_millis(self.random.random_range(200..2 * longest_ms));
        let mut renewed = Instant::now();
        while start.elapsed() < goal && !self.scene.is_over() {
            self.pause(longest_ms / 6..longest_ms / 4);
            while !self.scene.is_over() {
                let sent = Instant::now();
                let ttl_ms = match self.scene.plan.can_keep() {
                    true => longest_ms,
                    false => self.random.random_range(longest_ms * 3 / 4..=longest_ms),
                };
                match self.ask(&format!("LOCK.RENEW {key} {token} {ttl_ms}")) {
                    Some(Reply::Int(1)) => {
                        renewed = sent;
                        break;
                    }
                    Some(Reply::Int(_)) => return,
                    // Elsewhere, or later.
                    _ if renewed.elapsed() < Duration::from_millis(longest_ms) => {}
                    _ => return,
                }
            }
        }
    }
}
