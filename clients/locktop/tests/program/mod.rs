//! The program under test, and a terminal for it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::common::{Server, BOUND};

const PROGRAM: &str = env!("CARGO_BIN_EXE_locktop");

pub fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port)
}

/// Makes a user with these rights and no others; the address by which it logs in.
/// One that says which client ends a lock. Older ones do not.
pub fn server_that_tells_clients() -> Server {
    Server::start_with(&["--version", "valkey-9"])
}

pub fn name_of_a_user(server: &Server, name: &str, rights: &[&str]) -> String {
    let words = [
        "ACL",
        "SETUSER",
        name,
        "on",
        ">pw",
        "~*",
        "resetchannels",
        "-@all",
    ];
    server.admin().run(&[&words[..], rights].concat());
    format!("redis://{name}:pw@127.0.0.1:{}", server.port)
}

pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words).env_remove("REDISCLI_AUTH");
    command
}

pub fn locktop(words: &[&str]) -> Ran {
    Ran::of(&mut command(words))
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            status: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The line of the output that contains this.
    pub fn line(&self, part: &str) -> &str {
        let found = self.out.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("{part} is not in {self:?}"))
    }
}

/// A port in front of the server's at which there is no LOCK.TOP, as before 0.2.
pub fn without_top(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (mut answers, mut back) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut answers, &mut back));
            thread::spawn(move || rename(client, server));
        }
    });
    port
}

/// The program sends a whole command at a time, and LOCK.TOP at the beginning of one.
fn rename(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let text = &mut buffer[..length];
        if let Some(at) = text.windows(8).position(|word| word == b"LOCK.TOP") {
            text[at..at + 8].copy_from_slice(b"LOCK.OLD");
        }
        if to.write_all(text).is_err() {
            return;
        }
    }
}

/// A real terminal: tmux, with a socket of its own.
pub struct Terminal {
    folder: PathBuf,
}

static STARTED: AtomicUsize = AtomicUsize::new(0);

impl Terminal {
    /// Runs locktop in it.
    pub fn start(words: &[&str]) -> Self {
        Self::start_program(&[&[PROGRAM], words].concat())
    }

    /// Runs locktop where the clocks are five and a half hours ahead.
    pub fn start_ahead(words: &[&str]) -> Self {
        Self::start_program(&[&["env", "TZ=<+0530>-5:30", PROGRAM], words].concat())
    }

    /// Runs a shell in it that reads a command line. It is no shell that repairs terminals.
    pub fn start_shell() -> Self {
        Self::start_program(&["sh"])
    }

    /// Makes the shell run locktop; the process id.
    pub fn run(&self, words: &[&str]) -> String {
        let file = self.folder.join("pid");
        let line = format!(
            "sh -c 'echo $$ > {}; exec {PROGRAM} {}'",
            file.display(),
            words.join(" ")
        );
        self.press(&[&line, "Enter"]);
        let end = Instant::now() + BOUND;
        loop {
            match std::fs::read_to_string(&file) {
                Ok(pid) if pid.ends_with('\n') => return pid.trim().to_owned(),
                _ => assert!(Instant::now() < end, "it never started: {}", self.screen()),
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn start_program(words: &[&str]) -> Self {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("locktop-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let terminal = Self { folder };
        // The pane stays when the program ends, so that its status can be read.
        let settings = "set -g remain-on-exit on\nset -g escape-time 0\n";
        std::fs::write(terminal.folder.join("settings"), settings).unwrap();
        let size = ["new-session", "-d", "-x", "130", "-y", "30"];
        terminal.tmux(&[&size[..], words].concat());
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-uf").arg(self.folder.join("settings"));
        command.arg("-S").arg(self.folder.join("socket"));
        let output = command
            .args(words)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .env_remove("NO_COLOR")
            .output()
            .expect("tmux is installed by make setup");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Keys by the names of tmux: `x`, `Enter`, `Escape`.
    pub fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Makes it so many columns wide.
    pub fn resize(&self, columns: &str) {
        self.tmux(&["resize-window", "-x", columns]);
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen, as soon as it is as it has to be.
    pub fn shows(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + BOUND;
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(
                Instant::now() < end,
                "never on the screen: {what}\n{screen}"
            );
            sleep(Duration::from_millis(20));
        }
    }

    pub fn shows_text(&self, text: &str) -> String {
        self.shows(text, |screen| screen.contains(text))
    }

    pub fn lacks_text(&self, text: &str) -> String {
        self.shows(&format!("no {text}"), |screen| !screen.contains(text))
    }

    /// The program's status, as soon as it has ended.
    pub fn status(&self) -> String {
        let end = Instant::now() + BOUND;
        loop {
            let status = self.tmux(&["display-message", "-p", "#{pane_dead} #{pane_dead_status}"]);
            match status.trim().strip_prefix('1') {
                // Tmux may miss the signal of a child that ends. At the next one it looks again.
                Some("") => drop(self.tmux(&["run-shell", "-b", "true"])),
                Some(status) => return status.trim().to_owned(),
                None => {}
            }
            assert!(Instant::now() < end, "it never ended: {}", self.screen());
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.folder.join("socket");
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .arg("kill-server")
            .output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
