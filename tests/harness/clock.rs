use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use super::server::Setup;

/// The wall clock of a server, which a test may set. Dropping it removes its file. The server keeps
/// the last time set.
///
/// It is a few lines of C that are preloaded. libfaketime would not do: the jemalloc of Debian's
/// servers asks for the time before libfaketime can answer.
pub struct Clock {
    path: PathBuf,
    offset: File,
}

impl Clock {
    /// A clock that is ahead or behind by this much.
    pub fn ahead_by_us(offset_us: i64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("redis-lock-clock-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let clock = Self {
            offset: File::create(&path).expect("a temporary file"),
            path,
        };
        clock.set_ahead_by_us(offset_us);
        clock.set_speed(0);
        clock
    }

    /// By how many of a million all clocks of a server go fast, from its start on.
    pub fn set_speed(&self, of_a_million: i64) {
        let bytes = of_a_million.to_ne_bytes();
        self.offset.write_all_at(&bytes, 8).expect("to set a clock");
    }

    /// Sets it, also for a server that already uses it.
    pub fn set_ahead_by_us(&self, offset_us: i64) {
        let bytes = offset_us.to_ne_bytes();
        self.offset.write_all_at(&bytes, 0).expect("to set a clock");
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

impl Setup {
    /// Has the server run by this clock.
    pub fn with_clock(mut self, clock: &Clock) -> Self {
        let path = clock.path.to_str().expect("a path in UTF-8");
        self.env.push(("LD_PRELOAD".into(), library().into()));
        self.env.push(("CLOCK_OFFSET_FILE".into(), path.into()));
        self
    }
}

/// The path of the preloaded shared object, which is built once beside the test binary.
fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/harness/clock.c");
        let folder = std::env::current_exe().unwrap();
        let library = folder.with_file_name("libclock.so");
        // Another run may be using the old file, and nobody may see a half-written one.
        let fresh = library.with_extension(std::process::id().to_string());
        let built = Command::new("cc")
            .args([
                "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
            ])
            .args([fresh.as_os_str(), source.as_ref()])
            .arg("-ldl")
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cc {source}");
        fs::rename(&fresh, &library).unwrap();
        library.to_str().expect("a path in UTF-8").to_string()
    })
}
