//! Servers whose wall clock is not this machine's, by libfaketime. Their monotonic clock stays real.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use super::server::{Kind, Setup};

/// The wall clock of a server, which can be set while it runs. It must live as long as the server.
pub struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// A clock that is right, as yet.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let clock = Self {
            file: temporary(&format!("clock-{n}")),
        };
        clock.set_ahead_ms(0);
        clock
    }

    /// Sets the clock to this much ahead of the real one: a jump, not a change of speed.
    pub fn set_ahead_ms(&self, ms: i64) {
        // The server may read the file at any moment, so it is replaced as a whole.
        let new = self.file.with_extension("new");
        let sign = if ms < 0 { '-' } else { '+' };
        let (s, ms) = (ms.abs() / 1000, ms.abs() % 1000);
        fs::write(&new, format!("{sign}{s}.{ms:03}\n")).unwrap();
        fs::rename(&new, &self.file).unwrap();
    }

    /// The setup of a server that goes by this clock.
    pub fn rules(&self, kind: Kind, mut setup: Setup) -> Setup {
        let library = match kind {
            // Their allocator, a library of its own, asks for the time while it starts, and libfaketime for memory when it is first asked:
            // neither goes on.
            Kind::Redis7_0 | Kind::Valkey8_0 => stand_in(),
            _ => libfaketime(),
        };
        for (name, value) in [
            ("LD_PRELOAD", path(&library)),
            ("FAKETIME_TIMESTAMP_FILE", path(&self.file)),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ] {
            setup.env.push((name.into(), value.into()));
        }
        setup
    }
}

impl Drop for FakeClock {
    fn drop(&mut self) {
        fs::remove_file(&self.file).ok();
    }
}

/// The variant for processes with threads.
fn libfaketime() -> PathBuf {
    let per_architecture = fs::read_dir("/usr/lib").unwrap().flatten();
    let folders = per_architecture.map(|entry| entry.path().join("faketime"));
    let mut found = folders
        .map(|folder| folder.join("libfaketimeMT.so.1"))
        .filter(|library| library.exists());
    found.next().expect("libfaketime: run `make setup`")
}

/// What stands in for libfaketime, compiled.
fn stand_in() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clock.so");
        // Another process may compile or use it at the same time.
        let new = temporary("clock.so");
        let mut compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", path(&new)])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a C compiler: run `make setup`");
        let source = include_bytes!("faketime.c");
        compiler.stdin.take().unwrap().write_all(source).unwrap();
        assert!(compiler.wait().unwrap().success());
        fs::copy(&new, library.with_extension("new")).unwrap();
        fs::rename(library.with_extension("new"), &library).unwrap();
        fs::remove_file(&new).unwrap();
        library
    };
    LIBRARY.get_or_init(compile).clone()
}

fn temporary(name: &str) -> PathBuf {
    let pid = std::process::id();
    std::env::temp_dir().join(format!("redis-lock-{pid}-{name}"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
