//! The clients of one adapter, as a process: the `bench` that each language's folder has.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{CLIENTS, HOLD, LIMIT, LOCK};

/// Java is the first: its warm-up takes the lock itself, many times.
const ADAPTERS: [Adapter; 7] = [
    Adapter::of("java", "redis-lock"),
    Adapter::of("python", "redis-lock"),
    Adapter::of("python", "redis-lock-asyncio"),
    Adapter::of("node", "redis-lock"),
    Adapter::of("go", "redis-lock"),
    Adapter::of("rust", "redis-lock"),
    Adapter::of("rust", "redis-lock-tokio"),
];

#[derive(Clone, Copy)]
pub struct Adapter {
    language: &'static str,
    /// The name that the language's driver has for it.
    library: &'static str,
}

impl Adapter {
    const fn of(language: &'static str, library: &'static str) -> Self {
        Self { language, library }
    }

    /// The user that its connections are.
    pub fn name(self) -> String {
        match self.library.strip_prefix("redis-lock-") {
            Some(way) => format!("{}-{way}", self.language),
            None => self.language.to_string(),
        }
    }

    fn program(self) -> PathBuf {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        clients.join(self.language).join("bench")
    }

    fn is_set_up(self) -> bool {
        let output = Command::new(self.program()).arg("--list").output();
        output.is_ok_and(|output| {
            let names = String::from_utf8_lossy(&output.stdout);
            output.status.success() && names.lines().any(|name| name == self.library)
        })
    }
}

/// The adapters of the languages in EXAMPLES, or all.
pub fn chosen() -> Vec<Adapter> {
    let chosen = std::env::var("EXAMPLES").unwrap_or_default();
    let mut adapters = ADAPTERS.to_vec();
    adapters.retain(|adapter| chosen.is_empty() || chosen.contains(adapter.language));
    for adapter in &adapters {
        let program = adapter.program();
        assert!(
            adapter.is_set_up(),
            "{}: run `make setup-examples`",
            program.display()
        );
    }
    adapters
}

/// Clients that take turns until this is dropped.
pub struct Driver {
    pub name: String,
    child: Child,
    complaints: Arc<Mutex<String>>,
}

impl Driver {
    /// Returns when its clients begin.
    #[track_caller]
    pub fn start(adapter: Adapter, port: u16) -> Self {
        let name = adapter.name();
        let mut child = Command::new(adapter.program())
            .arg(adapter.library)
            .args(["--url", &format!("redis://{name}:any@127.0.0.1:{port}")])
            .args(["--lock", LOCK, "--clients", &CLIENTS.to_string()])
            .args(["--hold-ms", &HOLD.as_millis().to_string()])
            // Longer than the test.
            .args(["--seconds", "3600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a driver");
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let complaints = Arc::new(Mutex::new(String::new()));
        let (start, started) = channel();
        thread::spawn({
            let complaints = Arc::clone(&complaints);
            move || {
                for line in stderr.lines().map_while(Result::ok) {
                    match line.as_str() {
                        // After its time limit nobody listens.
                        "start" => drop(start.send(())),
                        _ => *complaints.lock().unwrap() += &format!("{line}\n"),
                    }
                }
            }
        });
        let driver = Self {
            name,
            child,
            complaints,
        };
        match started.recv_timeout(LIMIT) {
            Ok(()) => driver,
            Err(RecvTimeoutError::Timeout) => panic!("{} did not start", driver.name),
            Err(RecvTimeoutError::Disconnected) => driver.fail(),
        }
    }

    #[track_caller]
    pub fn assert_runs(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            self.fail();
        }
    }

    #[track_caller]
    fn fail(&self) -> ! {
        let complaints = self.complaints.lock().unwrap().clone();
        panic!("{} has ended:\n{complaints}", self.name);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
