//! The driver of a language: a process whose clients contend for a lock through one library, and
//! which prints each acquisition.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::holds::turn_of_all;

/// Time for a virtual machine to start. At the end, some drivers let every client finish its turn,
/// which takes longer by a turn of all of them.
const PATIENCE: Duration = Duration::from_secs(60);

/// The libraries that the driver in this folder knows. Empty if the driver cannot run.
pub fn list(folder: &Path) -> Option<Vec<String>> {
    let output = Command::new(folder.join("bench")).arg("--list").output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().map(String::from).collect())
}

/// The task of the clients.
pub struct Load {
    pub port: u16,
    pub clients: usize,
    pub hold_ms: u64,
    pub time: Duration,
}

/// A driver whose clients are connected and have started. Dropping it ends the process.
pub struct Driver {
    child: Child,
    /// The time from the end of the round until the process must have ended.
    patience: Duration,
    lines: JoinHandle<String>,
    errors: JoinHandle<String>,
}

impl Driver {
    /// Returns when the driver's clock starts.
    pub fn start(folder: &Path, library: &str, load: &Load) -> Result<Self, String> {
        let mut child = Command::new(folder.join("bench"))
            .arg(library)
            .args(["--url", &format!("redis://127.0.0.1:{}", load.port)])
            .args(["--lock", "lock:peers"])
            .args(["--clients", &load.clients.to_string()])
            .args(["--hold-ms", &load.hold_ms.to_string()])
            .args(["--seconds", &load.time.as_secs_f64().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut stdout = child.stdout.take().expect("a pipe");
        let lines = thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        let (errors, started) = listen(child.stderr.take().expect("a pipe"));
        let driver = Self {
            child,
            patience: PATIENCE + 2 * turn_of_all(load.hold_ms, load.clients),
            lines,
            errors,
        };
        match started.recv_timeout(PATIENCE) {
            Ok(()) => Ok(driver),
            Err(_) => Err(driver.end("it did not start")),
        }
    }

    /// Waits for the driver to end, and returns its lines.
    pub fn finish(mut self) -> Result<String, String> {
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if begin.elapsed() > self.patience => return Err(self.end("it did not end")),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        match status.success() {
            true => Ok(self.lines.join().expect("a thread that only reads")),
            false => Err(self.end(&status.to_string())),
        }
    }

    /// The error, with the driver's last line about it.
    fn end(mut self, what: &str) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let errors = self.errors.join().expect("a thread that only reads");
        let last: Vec<&str> = errors.lines().rev().take(3).collect();
        format!("{what}: {}", last.join(" / "))
    }
}

/// Reports the line `start`, and collects the other lines.
fn listen(stderr: ChildStderr) -> (JoinHandle<String>, Receiver<()>) {
    let (start, started) = channel();
    let errors = thread::spawn(move || {
        let mut others = String::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if line == "start" {
                // Nobody listens any more if the time limit was exceeded.
                let _ = start.send(());
            } else {
                others += &format!("{line}\n");
            }
        }
        others
    });
    (errors, started)
}
