use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::Duration;
use std::{slice, thread};

use super::client::{Client, Reply};
use super::kind::Kind;
use super::later::Later;
use super::server::{wait_for, Server, Setup};

/// How much time passes at once, in milliseconds. Less than any slack, or a server would seem to
/// have stood still.
const STEP_MS: i64 = 500;

/// The clocks of servers, which a test may set. Dropping it removes its file. The servers keep the
/// last time set.
///
/// It is a few lines of C that are preloaded. libfaketime would not do: the jemalloc of Debian's
/// servers asks for the time before libfaketime can answer.
pub struct Clock {
    path: PathBuf,
    offset: File,
    passed_us: AtomicI64,
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
            passed_us: AtomicI64::new(0),
        };
        clock.set_ahead_by_us(offset_us);
        clock.set_speed(0);
        clock.pass_ms(0);
        clock
    }

    /// A clock that stands, but for what `step` lets pass.
    pub fn standing() -> Self {
        let clock = Self::ahead_by_us(0);
        clock.set_speed(-1_000_000);
        clock
    }

    /// Lets so many milliseconds pass on a server, ten at a time, and before and after them what is
    /// due happen.
    pub fn step(&self, server: &mut Client, ms: u64) {
        let mut left = i64::try_from(ms).unwrap();
        loop {
            // Timers run after the commands of a turn, and may set others.
            for _ in 0..2 {
                server.text("PING");
            }
            if left == 0 {
                return;
            }
            let step = left.min(10);
            self.pass_ms(step);
            left -= step;
        }
    }

    /// Lets so many milliseconds pass on all clocks of its servers at once.
    pub fn pass_ms(&self, ms: i64) {
        let before_us = self.passed_us.fetch_add(ms * 1_000, Ordering::Relaxed);
        let bytes = (before_us + ms * 1_000).to_ne_bytes();
        self.offset
            .write_all_at(&bytes, 16)
            .expect("to set a clock");
    }

    /// Lets time pass, a little at a time, until the condition returns a value.
    #[track_caller]
    pub fn pass_until<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> T {
        Self::all_pass_until(slice::from_ref(self), what, condition)
    }

    /// The same with several clocks, one after the other.
    #[track_caller]
    pub fn all_pass_until<T>(
        clocks: &[Self],
        what: &str,
        mut condition: impl FnMut() -> Option<T>,
    ) -> T {
        wait_for(what, || {
            let value = condition();
            if value.is_none() {
                clocks.iter().for_each(|clock| clock.pass_ms(STEP_MS));
                // They do what is due.
                thread::sleep(Duration::from_millis(3));
            }
            value
        })
    }

    /// Lets time pass until a field of INFO has this value.
    #[track_caller]
    pub fn until_info(&self, c: &mut Client, field: &str, value: &str) {
        let what = format!("{field} to be {value}");
        self.pass_until(&what, || (c.info(field) == value).then_some(()));
    }

    /// Lets time pass until the reply comes. Answers it.
    #[track_caller]
    pub fn reply(&self, later: Later) -> Reply {
        self.pass_until("a reply", || later.is_answered().then_some(()));
        later.reply()
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

/// A server with the module that runs by a clock of the test.
pub fn start_by(clock: &Clock, kind: Kind, options: &[&str]) -> Server {
    Server::start_as(kind, Setup::with_module(options).with_clock(clock))
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
