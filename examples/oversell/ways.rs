//! Eight ways to keep two buyers from reading the same number.

use std::thread;
use std::time::Duration;

use redis::{Connection, RedisResult};

const LOCK: &str = "oversell:lock";

/// A poll that came in vain is repeated after this: shorter than the defaults of most libraries
/// (100 to 200 ms).
const POLL: Duration = Duration::from_millis(10);

/// No buyer waits as long.
const PATIENCE_MS: u64 = 60_000;

/// The release that every client of `SET NX PX` has to have: ends the lock only when it is still
/// its own.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    NoLock,
    Watch,
    SetNx,
    SetNxPx,
    /// The module's lock. The stock checks no fence.
    Unchecked,
    /// The module's lock. The stock refuses old fences.
    Module,
    /// The module's lock. The server refuses the write of a late owner.
    Guarded,
    ReadersWriters,
}

impl Way {
    pub const ALL: [Way; 8] = [
        Way::NoLock,
        Way::Watch,
        Way::SetNx,
        Way::SetNxPx,
        Way::Unchecked,
        Way::Module,
        Way::Guarded,
        Way::ReadersWriters,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Way::NoLock => "(a) no lock",
            Way::Watch => "(b) WATCH and MULTI",
            Way::SetNx => "(c) SETNX and polling",
            Way::SetNxPx => "(d) SET NX PX, Lua, polling",
            Way::Unchecked => "(e) LOCK.ACQUIRE, no fence check",
            Way::Module => "(f) LOCK.ACQUIRE, fence check",
            Way::Guarded => "(g) LOCK.ACQUIRE, LOCK.EXEC",
            Way::ReadersWriters => "(h) RWLOCK, 95 % readers",
        }
    }

    /// What refuses a write that comes too late.
    pub fn check(self) -> &'static str {
        match self {
            Way::NoLock | Way::SetNx | Way::SetNxPx | Way::Unchecked => "none",
            Way::Watch => "transaction",
            Way::Module | Way::ReadersWriters => "fence",
            Way::Guarded => "owner",
        }
    }

    pub fn has_lock(self) -> bool {
        !matches!(self, Way::NoLock | Way::Watch)
    }

    /// How one process tells another of the way.
    pub fn letter(self) -> &'static str {
        &self.name()[1..2]
    }

    pub fn of_letter(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.letter() == letter)
    }
}

/// One buyer's part in a lock.
pub struct Lock {
    pub way: Way,
    pub token: String,
    pub ttl_ms: u64,
    /// How often it was asked for in vain.
    pub in_vain: u64,
}

impl Lock {
    /// Waits for the lock; answers its fence, 0 where there is none.
    pub fn acquire(&mut self, c: &mut Connection, shared: bool) -> RedisResult<u64> {
        match self.way {
            Way::NoLock | Way::Watch => Ok(0),
            Way::SetNx => {
                while !redis::cmd("SETNX")
                    .arg(LOCK)
                    .arg(&self.token)
                    .query::<bool>(c)?
                {
                    self.sleep();
                }
                // Who dies before this leaves a lock for ever.
                redis::cmd("PEXPIRE").arg(LOCK).arg(self.ttl_ms).exec(c)?;
                Ok(0)
            }
            Way::SetNxPx => {
                let mut set = redis::cmd("SET");
                set.arg(LOCK).arg(&self.token);
                set.arg("NX").arg("PX").arg(self.ttl_ms);
                while !set.query::<bool>(c)? {
                    self.sleep();
                }
                Ok(0)
            }
            Way::Unchecked | Way::Module | Way::Guarded | Way::ReadersWriters => {
                let command = match shared {
                    true => "RWLOCK.RLOCK",
                    false => "LOCK.ACQUIRE",
                };
                redis::cmd(command)
                    .arg(LOCK)
                    .arg(&self.token)
                    .arg(self.ttl_ms)
                    .arg("BLOCK")
                    .arg(PATIENCE_MS)
                    .query(c)
            }
        }
    }

    pub fn release(&self, c: &mut Connection) -> RedisResult<()> {
        match self.way {
            Way::NoLock | Way::Watch => Ok(()),
            // Whoever it belongs to by now.
            Way::SetNx => redis::cmd("DEL").arg(LOCK).exec(c),
            Way::SetNxPx => redis::cmd("EVAL")
                .arg(RELEASE)
                .arg(1)
                .arg(LOCK)
                .arg(&self.token)
                .exec(c),
            Way::Unchecked | Way::Module | Way::Guarded | Way::ReadersWriters => {
                redis::cmd("LOCK.RELEASE")
                    .arg(LOCK)
                    .arg(&self.token)
                    .exec(c)
            }
        }
    }

    /// The command, to be run only while this buyer holds the lock.
    pub fn guarded(&self, words: &[&str]) -> redis::Cmd {
        let mut exec = redis::cmd("LOCK.EXEC");
        exec.arg(LOCK).arg(&self.token).arg(words);
        exec
    }

    fn sleep(&mut self) {
        self.in_vain += 1;
        thread::sleep(POLL);
    }
}

/// Leaves nothing of an earlier run.
pub fn clear(c: &mut Connection) -> RedisResult<()> {
    redis::cmd("DEL").arg(LOCK).exec(c)
}
