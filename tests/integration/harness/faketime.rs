//! Servers with a fake wall clock, by libfaketime where it works. Their monotonic clock stays real.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::clock::Clock;
use super::kind::Kind;
use super::server::Setup;

/// The wall clock of a server, which can be set while it runs. It must live as long as the server.
pub struct FakeClock {
    /// The file that libfaketime reads.
    file: PathBuf,
    /// The substitute for it.
    stand_in: Clock,
}

impl FakeClock {
    /// A clock without an offset.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let clock = Self {
            file: temporary(&format!("clock-{n}")),
            stand_in: Clock::ahead_by_us(0),
        };
        clock.set_ahead_ms(0);
        clock
    }

    /// Sets the clock to this offset from the real one: a jump, not a change of speed.
    pub fn set_ahead_ms(&self, ms: i64) {
        self.stand_in.set_ahead_by_us(ms * 1000);
        // The server may read the file at any moment, so it is replaced as a whole.
        let new = self.file.with_extension("new");
        let sign = if ms < 0 { '-' } else { '+' };
        let (s, ms) = (ms.abs() / 1000, ms.abs() % 1000);
        fs::write(&new, format!("{sign}{s}.{ms:03}\n")).unwrap();
        fs::rename(&new, &self.file).unwrap();
    }

    /// The setup of a server that uses this clock.
    pub fn rules(&self, kind: Kind, mut setup: Setup) -> Setup {
        // Their allocator is a library of its own. It asks for the time while it starts, and
        // libfaketime asks for memory at its first call: both hang.
        if kind.is_of_debian() {
            return setup.with_clock(&self.stand_in);
        }
        for (name, value) in [
            ("LD_PRELOAD", path(&libfaketime())),
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

fn temporary(name: &str) -> PathBuf {
    let pid = std::process::id();
    std::env::temp_dir().join(format!("redis-lock-{pid}-{name}"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
