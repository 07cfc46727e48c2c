use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::server::{wait_for, Server};

/// A client program on a terminal, to test its output while a user types. `script` of util-linux
/// provides the terminal.
pub struct Terminal {
    script: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts `cli` on the server, and waits for its prompt.
    #[track_caller]
    pub fn open(server: &Server, cli: &Path) -> Self {
        // Without a width the program would ask the terminal for the cursor position, and nobody
        // would answer.
        let command = format!("stty cols 200; exec {} -p {}", cli.display(), server.port);
        let mut script = Command::new("script")
            .args(["--quiet", "--flush", "--command", &command, "/dev/null"])
            // Without the history and the settings of the user who runs the tests.
            .env("HOME", server.dir())
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("to run script of util-linux");
        let keyboard = script.stdin.take().expect("its input");
        let mut output = script.stdout.take().expect("its output");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&screen);
        // It ends with the program.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        let terminal = Self {
            script,
            keyboard,
            screen,
        };
        let prompt = format!("127.0.0.1:{}> ", server.port);
        terminal.wait_for_line(&prompt);
        terminal
    }

    /// Types `keys`, and waits until the current line ends with `expected`, including hints.
    #[track_caller]
    pub fn shows(&mut self, keys: &str, expected: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("to type");
        self.keyboard.flush().expect("to type");
        self.wait_for_line(expected);
    }

    /// Waits until a line was printed, in any colours.
    #[track_caller]
    pub fn has_shown(&self, text: &str) {
        let what = format!("{text:?}");
        wait_for(&what, || {
            let screen = self.screen.lock().unwrap();
            let plain = without_escapes(&String::from_utf8_lossy(&screen));
            plain.contains(text).then_some(())
        });
    }

    #[track_caller]
    fn wait_for_line(&self, expected: &str) {
        let bare = |line: &str| line.trim_end().to_string();
        let screen = || String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned();
        let found = || bare(&last_line(&screen())).ends_with(&bare(expected));
        let what = format!("{expected:?}");
        wait_for(&what, || found().then_some(()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program ends with its terminal.
        self.script.kill().ok();
        self.script.wait().ok();
        if thread::panicking() {
            let screen = self.screen.lock().map(|bytes| bytes.clone());
            let screen = screen.unwrap_or_default();
            eprintln!("the terminal:\n{}", String::from_utf8_lossy(&screen));
        }
    }
}

/// The current line without colours. The program prints it again after each key, from the left.
fn last_line(screen: &str) -> String {
    let plain = without_escapes(screen);
    let mut lines = plain.rsplit('\r').filter(|line| !line.trim().is_empty());
    lines.next().unwrap_or_default().to_string()
}

fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        // An escape sequence ends with its first letter.
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        plain += end.map_or("", |end| &part[end + 1..]);
    }
    plain
}
