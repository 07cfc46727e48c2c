//! The libraries: their names, where their versions are recorded, and how they wait.

use std::fs;
use std::path::{Path, PathBuf};

/// The libraries of one language. Its folder in `clients/` has one driver for all of them, `bench`.
pub struct Language {
    pub name: &'static str,
    pub folder: &'static str,
    /// The file that records the installed versions.
    versions: &'static str,
    pub libraries: &'static [Library],
}

pub struct Library {
    /// The name that its driver uses.
    pub driver: &'static str,
    pub name: &'static str,
    /// The version follows these marks in the file, one after the other.
    marks: &'static [&'static str],
    /// Whether it is this project's adapter. The version is then that of the Redis client under it.
    pub is_ours: bool,
    pub waits: &'static str,
}

impl Library {
    const fn ours(driver: &'static str, on: &'static str, marks: &'static [&'static str]) -> Self {
        Self {
            driver,
            name: on,
            marks,
            is_ours: true,
            waits: "BLOCK",
        }
    }

    const fn peer(name: &'static str, marks: &'static [&'static str], waits: &'static str) -> Self {
        Self {
            driver: name,
            name,
            marks,
            is_ours: false,
            waits,
        }
    }

    const fn called(self, driver: &'static str) -> Self {
        Self { driver, ..self }
    }
}

const VERSION: &str = "\"version\": \"";

pub static LANGUAGES: [Language; 4] = [
    Language {
        name: "Python",
        folder: "python",
        versions: "requirements.txt",
        libraries: &[
            Library::ours("redis-lock", "redis-py", &["\nredis=="]),
            Library::ours("redis-lock-asyncio", "redis-py, asyncio", &["\nredis=="]),
            Library::peer("redis-py", &["\nredis=="], "polls every 100 ms"),
            Library::peer(
                "python-redis-lock",
                &["python-redis-lock=="],
                "BLPOP on a signal list",
            ),
        ],
    },
    Language {
        name: "Node",
        folder: "node",
        versions: "package-lock.json",
        libraries: &[
            Library::ours(
                "redis-lock",
                "ioredis",
                &["\"node_modules/ioredis\"", VERSION],
            ),
            Library::peer(
                "node-redlock",
                &["\"node_modules/redlock\"", VERSION],
                "polls every 100 to 300 ms",
            )
            .called("redlock"),
            Library::peer(
                "node-redlock",
                &["\"node_modules/redlock-5\"", VERSION],
                "polls every 100 to 300 ms",
            )
            .called("redlock-5-beta"),
        ],
    },
    Language {
        name: "Go",
        folder: "go",
        versions: "peers/go.mod",
        libraries: &[
            Library::ours("redis-lock", "go-redis", &["redis/go-redis/v9 v"]),
            Library::peer(
                "redsync",
                &["go-redsync/redsync/v4 v"],
                "polls every 50 to 250 ms",
            ),
            Library::peer("bsm/redislock", &["bsm/redislock v"], "polls every 100 ms")
                .called("bsm-redislock"),
        ],
    },
    Language {
        name: "Java",
        folder: "java",
        versions: "pom.xml",
        libraries: &[
            Library::ours("redis-lock", "Jedis", &["<jedis.version>"]),
            Library::peer(
                "Redisson",
                &["<redisson.version>"],
                "pub/sub, woken to try again",
            )
            .called("redisson"),
        ],
    },
];

impl Language {
    /// The folder clients/ of this project, or of another copy if BENCH_CLIENTS names one.
    pub fn path(&self) -> PathBuf {
        let clients = std::env::var_os("BENCH_CLIENTS").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("clients"),
            PathBuf::from,
        );
        clients.join(self.folder)
    }

    pub fn version(&self, library: &Library) -> Option<String> {
        let text = fs::read_to_string(self.path().join(self.versions)).ok()?;
        version_in(&text, library.marks).map(String::from)
    }

    /// `redsync 4.13.0`, or `redis-lock (go-redis 9.18.0)`.
    pub fn title(&self, library: &Library) -> String {
        let version = self.version(library).unwrap_or("?".into());
        let name = match library.name.split_once(", ") {
            Some((name, way)) => format!("{name} {version}, {way}"),
            None => format!("{} {version}", library.name),
        };
        match library.is_ours {
            true => format!("redis-lock ({name})"),
            false => name,
        }
    }
}

/// The text after the last mark. Each mark follows the one before.
pub fn version_in<'a>(text: &'a str, marks: &[&str]) -> Option<&'a str> {
    let rest = marks
        .iter()
        .try_fold(text, |rest, mark| Some(rest.split_once(mark)?.1))?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    Some(&rest[..end])
}
