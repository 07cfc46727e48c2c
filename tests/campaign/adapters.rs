//! The adapters of five languages at their defaults, each as a process that says what it believes to
//! hold: the programs `beliefs` in `clients/`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use super::journal::Journal;

pub const LANGUAGES: [&str; 5] = ["python", "node", "go", "java", "rust"];

/// A hold, as its owner believes. Times are of the machine's monotonic clock.
#[derive(Debug)]
pub struct Held {
    pub key: String,
    pub token: String,
    pub fence: String,
    pub from_us: u64,
    pub until_us: u64,
}

/// What the process of an adapter does.
pub struct Task<'t> {
    pub port: u16,
    /// The locks are `{key}0`, `{key}1` and so on.
    pub key: &'t str,
    pub keys: usize,
    pub clients: usize,
    pub ttl_ms: u64,
    pub hold_ms: u64,
}

/// It runs until this is dropped.
pub struct Adapter(Child);

impl Adapter {
    /// Returns when it begins.
    pub fn start(language: &str, task: &Task<'_>) -> (Self, BufReader<ChildStdout>) {
        let (mut command, _) = program(language);
        let mut child = command
            .args([task.port.to_string(), task.keys.to_string()])
            .args([task.key, &task.clients.to_string()])
            .args([task.ttl_ms.to_string(), task.hold_ms.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{language}: {error}"));
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let adapter = Self(child);
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), "start", "{language}");
        // It complains of each connection that is lost.
        std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
        (adapter, said)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Those that can be started here.
pub fn those_set_up() -> &'static [&'static str] {
    static FOUND: OnceLock<Vec<&'static str>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let is_set_up = |language: &&str| program(language).1.exists();
        let (found, missing): (Vec<_>, Vec<_>) = LANGUAGES.iter().partition(|l| is_set_up(l));
        if !missing.is_empty() {
            eprintln!("not set up, see `make setup-examples`: {missing:?}");
        }
        found
    })
}

/// How the adapter's program is run, and a file that is there if it is set up.
fn program(language: &str) -> (Command, PathBuf) {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let folder = clients.join(language);
    let (program, is_built) = match language {
        "python" => (folder.join(".venv/bin/python"), folder.join(".venv/ready")),
        "node" => ("node".into(), folder.join("dist/esm/index.js")),
        "java" => {
            let class = "target/test-classes/io/github/redislock/bench/Beliefs.class";
            ("java".into(), folder.join(class))
        }
        "go" => (
            folder.join("peers/bin/beliefs"),
            folder.join("peers/bin/beliefs"),
        ),
        _ => {
            let program = folder.join("target/debug/examples/beliefs");
            (program.clone(), program)
        }
    };
    let mut command = Command::new(program);
    match language {
        "python" => command.arg(folder.join("beliefs.py")),
        "node" => command.arg(folder.join("beliefs.js")),
        "java" => {
            let classes = ["target/classes", "target/test-classes", "target/lib/*"];
            let classes = classes.map(|name| folder.join(name).display().to_string());
            command
                .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
                .args([&classes.join(":"), "io.github.redislock.bench.Beliefs"])
        }
        _ => &mut command,
    };
    (command, is_built)
}

/// Writes into the journal what an adapter says, until it ends.
pub fn listen(language: &str, said: BufReader<ChildStdout>, journal: &Journal) {
    let start_us = monotonic_us(journal.start);
    for line in said.lines().map_while(Result::ok) {
        let Some(held) = Held::read(&line) else {
            continue;
        };
        let at = |us: u64| us.saturating_sub(start_us);
        let (from_us, until_us) = (at(held.from_us), at(held.until_us));
        let Held {
            key, token, fence, ..
        } = held;
        let text = format!("{key} {token} {fence} {from_us} {until_us}");
        journal.note(language, 0, "held", &text);
    }
}

impl Held {
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ').map(str::to_string);
        let mut word = || words.next();
        Some(Self {
            key: word()?,
            token: word()?,
            fence: word()?,
            from_us: word()?.parse().ok()?,
            until_us: word()?.parse().ok()?,
        })
    }
}

/// The machine's monotonic clock. The standard library tells it in no other way:
/// `Instant { tv_sec: 812, tv_nsec: 1200300 }`.
pub fn monotonic_us(at: Instant) -> u64 {
    let text = format!("{at:?}");
    let number = |name: &str| -> u64 {
        let (_, rest) = text.split_once(name).expect("an instant");
        let digits = rest.split([',', ' ']).next().expect("a number");
        digits.parse().expect("a number")
    };
    number("tv_sec: ") * 1_000_000 + number("tv_nsec: ") / 1_000
}
