//! A server, the program under test, and the resource that the lock protects.

use std::path::{Path, PathBuf};

use crate::harness::{wait_for, Client, Kind, Reply, Server};
use crate::worker::Worker;

pub const LOCK: &str = "lock:stock";
pub const RESOURCE: &str = "stock";

/// The script that every example sends for each write.
const SCRIPT: &str = include_str!("../../examples/resource.lua");

/// The file that `make setup` creates in a language's folder.
const SIGNS_OF_SETUP: [&str; 4] = [".venv", "node_modules", "target", "bin"];

/// A worker, in one language and variant.
#[derive(Clone, Debug)]
pub struct Program {
    pub run: PathBuf,
    pub variant: &'static str,
}

impl Program {
    /// The program.
    ///
    /// # Panics
    /// If it is not set up.
    pub fn find(language: &'static str, variant: &'static str) -> Self {
        let examples = std::env::var_os("EXAMPLES_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"),
            PathBuf::from,
        );
        let folder = examples.join(language);
        let run = folder.join("run");
        let is_set_up = SIGNS_OF_SETUP.iter().any(|sign| folder.join(sign).exists());
        assert!(
            run.exists() && is_set_up,
            "{language}: run `make setup-examples`"
        );
        Self { run, variant }
    }
}

/// A line of the resource's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub accepted: bool,
    pub fence: i64,
    pub token: String,
}

pub struct Fixture {
    pub server: Server,
    pub control: Client,
    program: Program,
}

impl Fixture {
    pub fn with(program: Program) -> Self {
        let server = Server::start(kind());
        let control = server.client();
        Self {
            server,
            control,
            program,
        }
    }

    /// Starts a worker with additional command-line options.
    pub fn worker(&self, options: &str) -> Worker {
        Worker::start(&self.program, self.server.port, options)
    }

    /// Acquires the lock for another client than the workers. It must be free now or soon.
    #[track_caller]
    pub fn take_as(&mut self, token: &str) -> i64 {
        let line = format!("LOCK.ACQUIRE {LOCK} {token} 60000 BLOCK 10000");
        self.control.int(&line)
    }

    #[track_caller]
    pub fn release_as(&mut self, token: &str) {
        assert_eq!(
            self.control.int(&format!("LOCK.RELEASE {LOCK} {token}")),
            1,
            "{token} holds it no more"
        );
    }

    /// Writes to the resource as another client than the workers.
    #[track_caller]
    pub fn write_as(&mut self, token: &str, fence: i64) {
        let fence = fence.to_string();
        let reply = self
            .control
            .send(&["EVAL", SCRIPT, "1", RESOURCE, &fence, token]);
        assert_eq!(reply, Reply::Int(1), "{token} may not write");
    }

    /// Waits until a connection of the token waits. A worker that reconnects has its place, too,
    /// but none waits there.
    #[track_caller]
    pub fn wait_until_waiting(&mut self, token: &str) {
        let waits = |waiter: &Reply| {
            let has_client = waiter.items().contains(&Reply::from("client"));
            has_client && waiter.field("token") == Reply::from(token)
        };
        wait_for(&format!("{token} to wait"), || {
            let info = self.control.call(&format!("LOCK.INFO {LOCK}"));
            let is_waiting = info != Reply::Nil && info.field("waiters").items().iter().any(waits);
            is_waiting.then_some(())
        });
    }

    /// Closes every connection but ours. There must be at least one.
    #[track_caller]
    pub fn cut_all(&mut self) {
        let cut = self.control.int("CLIENT KILL TYPE normal");
        assert!(cut > 0, "nobody was connected");
    }

    /// The writes to the resource with their owners. Checks that fences never fall and that every
    /// accepted write is counted.
    #[track_caller]
    pub fn log(&mut self) -> Vec<Entry> {
        let lines = self.control.call(&format!("LRANGE {RESOURCE}:log 0 -1"));
        let lines = lines.items().iter();
        let log: Vec<_> = lines.map(|line| Entry::parse(line.as_bytes())).collect();
        let accepted: Vec<i64> = log.iter().filter(|e| e.accepted).map(|e| e.fence).collect();
        assert!(accepted.is_sorted(), "late writes: {log:?}");
        let counted = self.control.call(&format!("HGET {RESOURCE} writes"));
        let expected = match accepted.len() {
            0 => Reply::Nil,
            n => Reply::from(n.to_string().as_str()),
        };
        assert_eq!(counted, expected, "{log:?}");
        log
    }

    /// The accepted writes of one owner.
    #[track_caller]
    pub fn written_by(&mut self, token: &str) -> Vec<Entry> {
        let mut log = self.log();
        log.retain(|entry| entry.accepted && entry.token == token);
        log
    }

    /// Whether nobody holds the lock or waits for it. To be called after all workers have exited
    /// normally.
    #[track_caller]
    pub fn assert_free(&mut self) {
        let info = self.control.call(&format!("LOCK.INFO {LOCK}"));
        assert_eq!(info, Reply::Nil, "somebody was left behind");
        self.log();
    }
}

impl Entry {
    fn parse(line: &[u8]) -> Self {
        let text = std::str::from_utf8(line).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        let [did, fence, token] = words[..] else {
            panic!("an entry of the log: {text}");
        };
        assert!(!token.is_empty(), "an owner without a name: {text}");
        Self {
            accepted: did == "wrote",
            fence: fence.parse().expect("a fence"),
            token: token.to_string(),
        }
    }
}

/// The server that the tests run on.
pub fn kind() -> Kind {
    Kind::Redis7_0
}
