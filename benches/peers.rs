//! Locks without the module: the commands of the alternatives, and of the fastest that blocked
//! clients can be.

use std::time::Duration;

use crate::harness::Client;
use crate::load::{token, Requests};

/// The release that checks its owner, as every guide to `SET NX PX` shows it.
pub const COMPARE_AND_DELETE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";

/// A write that only the lock's owner may do, as a script.
pub const CHECK_AND_SET: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('SET',KEYS[2],ARGV[2]) end";

/// The release of python-redis-lock. It leaves a signal for one of the clients that wait in BLPOP.
const SIGNAL_AND_DELETE: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
     redis.call('del',KEYS[2]) redis.call('lpush',KEYS[2],1) redis.call('pexpire',KEYS[2],ARGV[2]) \
     redis.call('del',KEYS[1]) return 1";

/// How clients contend for one lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Protocol {
    /// This module.
    Lock,
    /// The module's reader-writer lock: every tenth client writes.
    ReadersAndWriters,
    /// A list with one element: BLPOP takes it, LPUSH returns it. There is no owner and no ttl, so
    /// it is not a lock. It shows the upper bound for blocked clients.
    Ceiling,
    /// SET NX PX, then BLPOP on a signal that the release leaves, then SET NX PX again.
    Signal,
    /// SET NX PX in a loop, with a pause in milliseconds.
    Poll(u64),
}

/// What to do if the lock is unavailable.
#[derive(Clone)]
pub enum Refused {
    Never,
    Sleep(Duration),
    Block(Vec<u8>),
}

/// The commands of one client.
pub struct Script {
    pub acquire: Vec<u8>,
    pub refused: Refused,
    pub release: Vec<u8>,
}

/// The SHA sums of the scripts on a server.
pub struct Scripts {
    pub compare_and_delete: String,
    signal_and_delete: String,
}

impl Scripts {
    pub fn load(control: &mut Client) -> Self {
        let mut load = |text: &str| {
            let name = control.send(&["SCRIPT", "LOAD", text]);
            String::from_utf8_lossy(name.as_bytes()).into_owned()
        };
        Self {
            compare_and_delete: load(COMPARE_AND_DELETE),
            signal_and_delete: load(SIGNAL_AND_DELETE),
        }
    }
}

impl Protocol {
    pub fn name(self) -> String {
        match self {
            Self::Lock => "LOCK.ACQUIRE BLOCK".into(),
            Self::ReadersAndWriters => "RLOCK / WLOCK 9:1".into(),
            Self::Ceiling => "BLPOP / LPUSH ceiling".into(),
            Self::Signal => "BLPOP signal".into(),
            Self::Poll(ms) => format!("poll {ms} ms"),
        }
    }

    /// Whether the n-th client writes.
    pub fn writes(self, n: usize) -> bool {
        self != Self::ReadersAndWriters || n % 10 == 0
    }

    /// The keys that must exist before the clients start.
    pub fn prepare(self, control: &mut Client) {
        if self == Self::Ceiling {
            control.call("LPUSH bench:list x");
        }
    }

    pub fn script(self, n: usize, scripts: &Scripts) -> Script {
        let token = token(n);
        let set = format!("SET bench:lock {token} NX PX 60000");
        let (acquire, refused, release) = match self {
            Self::Lock => (
                format!("LOCK.ACQUIRE bench:lock {token} 60000 BLOCK 0"),
                Refused::Never,
                format!("LOCK.RELEASE bench:lock {token}"),
            ),
            Self::ReadersAndWriters => {
                let command = if self.writes(n) { "WLOCK" } else { "RLOCK" };
                (
                    format!("RWLOCK.{command} bench:lock {token} 60000 BLOCK 0"),
                    Refused::Never,
                    format!("LOCK.RELEASE bench:lock {token}"),
                )
            }
            Self::Ceiling => (
                "BLPOP bench:list 0".into(),
                Refused::Never,
                "LPUSH bench:list x".into(),
            ),
            Self::Signal => {
                let name = &scripts.signal_and_delete;
                (
                    set,
                    Refused::Block(rendered("BLPOP bench:signal 60")),
                    format!("EVALSHA {name} 2 bench:lock bench:signal {token} 60000"),
                )
            }
            Self::Poll(ms) => {
                let name = &scripts.compare_and_delete;
                (
                    set,
                    Refused::Sleep(Duration::from_millis(ms)),
                    format!("EVALSHA {name} 1 bench:lock {token}"),
                )
            }
        };
        Script {
            acquire: rendered(&acquire),
            refused,
            release: rendered(&release),
        }
    }
}

fn rendered(line: &str) -> Vec<u8> {
    Requests::of([line.to_string()]).into_bytes()
}
