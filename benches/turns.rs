//! The longest turn of a server's event loop, which is how long a client waits in the worst case.
//!
//! A client that asks all the time sees it only together with all that the machine does besides. So
//! a few lines of C, preloaded into the server, read the processor time of its main thread where it
//! begins and ends to wait for events. Redis 7.0 has no such figure, and newer servers have only
//! sums.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::harness::Setup;

/// The measurement of one server. Dropping it removes its file.
pub struct Turns {
    path: PathBuf,
    file: File,
}

/// What was measured during some work.
#[derive(Clone, Copy, Debug)]
pub struct Longest {
    /// The processor time of the longest turn.
    pub cpu_us: f64,
    /// How long the longest turn took by the clock, which on a shared machine may be another one.
    pub wall_us: f64,
    /// How many turns took 10 ms of processor time or more.
    pub long_ones: u64,
}

const WORDS: usize = 4;

impl Turns {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("redis-lock-turns-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let turns = Self {
            file: options.open(&path).expect("a temporary file"),
            path,
        };
        turns.forget();
        turns
    }

    /// Has a server measure its turns.
    pub fn setup(&self, mut setup: Setup) -> Setup {
        let path = self.path.to_str().expect("a path in UTF-8");
        setup.env.push(("LD_PRELOAD".into(), library().into()));
        setup.env.push(("TURNS_FILE".into(), path.into()));
        setup
    }

    /// Forgets the turns so far. The server is idle.
    pub fn forget(&self) {
        let zeros = [0; WORDS * 8];
        self.file.write_all_at(&zeros, 0).expect("to write");
    }

    /// The turns since.
    pub fn longest(&self) -> Longest {
        let mut bytes = [0; WORDS * 8];
        self.file.read_exact_at(&mut bytes, 0).expect("to read");
        let word = |n: usize| u64::from_ne_bytes(bytes[n * 8..n * 8 + 8].try_into().unwrap());
        Longest {
            cpu_us: word(0) as f64 / 1e3,
            wall_us: word(1) as f64 / 1e3,
            long_ones: word(2),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

/// The path of the preloaded shared object, which is built once beside the benchmark.
fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/turns.c");
        let benchmark = std::env::current_exe().unwrap();
        let library = benchmark.with_file_name("libturns.so");
        // Another run may be using the old file.
        let fresh = library.with_extension(std::process::id().to_string());
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args(["-o".as_ref(), fresh.as_os_str(), source.as_ref()])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cc {source}");
        fs::rename(&fresh, &library).unwrap();
        library.to_str().expect("a path in UTF-8").to_string()
    })
}
