//! Servers with the module for the tests, and a proxy that fails on demand.
//!
//! clients/testing/servers.py starts them: it tells which variables say where they are.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic
)]

mod proxy;
mod topology;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, Value};

pub use proxy::Proxy;
pub use topology::{Cluster, Sentinels};

/// A bound that only a bug or a dead machine outlasts, also where servers fail over.
pub const BOUND: Duration = Duration::from_secs(40);

/// What one call of clients/testing/servers.py has started. It ends with its standard input.
pub struct Launched(Child);

impl Launched {
    pub fn start(words: &[&str]) -> Vec<Server> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/servers.py");
        let mut launcher = Command::new("python3")
            .arg(script)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let mut said = BufReader::new(launcher.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let launched = Arc::new(Self(launcher));
        let server = |one: &str| {
            let (port, pid) = one.split_once('/').unwrap();
            Server {
                port: port.parse().unwrap(),
                pid: pid.to_owned(),
                launched: launched.clone(),
            }
        };
        line.split_whitespace().map(server).collect()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A server that ends with its owner.
pub struct Server {
    pub port: u16,
    pid: String,
    launched: Arc<Launched>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With arguments of the module, and settings of the server behind them.
    pub fn start_with(settings: &[&str]) -> Self {
        Launched::start(&[&["server"], settings].concat()).swap_remove(0)
    }

    /// A server that has no module of ours.
    pub fn start_without_module() -> Self {
        Self::start_with(&["--without-module"])
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn client(&self) -> Client {
        Client::open(self.url()).unwrap()
    }

    /// `None` while a server closes its connections.
    pub fn try_admin(&self) -> Option<Admin> {
        self.client().get_connection().ok().map(Admin)
    }

    pub fn admin(&self) -> Admin {
        Admin(self.client().get_connection().unwrap())
    }

    /// Stops the process without ending it: it accepts connections and answers nothing.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.pid]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The last one of a group ends with its launcher.
        if Arc::strong_count(&self.launched) > 1 {
            self.signal("-KILL");
        }
    }
}

/// A server behind a proxy, and who looks at it.
pub fn proxied() -> (Server, Proxy, Admin) {
    let server = Server::start();
    let (proxy, admin) = (Proxy::to(server.port), server.admin());
    (server, proxy, admin)
}

/// An operator's connection.
pub struct Admin(Connection);

impl Admin {
    pub fn ask(&mut self, words: &[&str]) -> redis::RedisResult<Value> {
        let (name, args) = words.split_first().unwrap();
        redis::cmd(name).arg(args).query(&mut self.0)
    }

    pub fn run(&mut self, words: &[&str]) -> Value {
        self.ask(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// `LOCK.INFO` as text, empty when the lock is free and nobody waits.
    pub fn info(&mut self, key: &str) -> String {
        match self.run(&["LOCK.INFO", key]) {
            Value::Nil => String::new(),
            info => format!("{info:?}"),
        }
    }

    pub fn waiters(&mut self, key: &str) -> usize {
        let info = self.info(key);
        let count = info.split("waiter-count").nth(1);
        // `"'), int(2), …`
        let count = count.and_then(|behind| behind.split(['(', ')']).nth(2));
        count.map_or(0, |count| count.parse().unwrap())
    }

    pub fn int(&mut self, words: &[&str]) -> i64 {
        redis::from_redis_value(self.run(words)).unwrap()
    }

    /// How often a command was called, in small letters.
    pub fn calls(&mut self, command: &str) -> usize {
        let info = format!("{:?}", self.run(&["INFO", "commandstats"])).to_lowercase();
        let calls = info.split(&format!("cmdstat_{command}:calls=")).nth(1);
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }

    pub fn is_free(&mut self, key: &str) -> bool {
        self.int(&["EXISTS", key]) == 0 && self.waiters(key) == 0
    }

    pub fn await_waiters(&mut self, key: &str, count: usize) {
        eventually(&format!("{count} wait for {key}"), || {
            self.waiters(key) == count
        });
    }

    /// The connections of clients, but for this one and those of no interest.
    pub fn clients(&mut self, containing: &str) -> usize {
        let list: String = redis::from_redis_value(self.run(&["CLIENT", "LIST"])).unwrap();
        let is_it = |line: &&str| line.contains(containing);
        list.lines().filter(is_it).count()
    }
}

/// A count of calls, and the callback that is called.
pub fn counter<T: ?Sized + 'static>() -> (Arc<AtomicUsize>, impl Fn(&T) + Send + Sync + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let callback = move |_: &T| {
        counted.fetch_add(1, SeqCst);
    };
    (count, callback)
}

/// Waits for a condition, within a bound.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "never happened: {what}");
        sleep(Duration::from_millis(2));
    }
}
