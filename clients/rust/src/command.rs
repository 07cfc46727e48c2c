//! The commands of the module, and the replies that need reading.

use std::time::Duration;

use redis::{Arg, Cmd};

use crate::Mode;

/// The token's hold begins, or goes on with a new deadline. An answer may be lost and asked for again.
const SET: &str = "\
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const RENEW: &str = "\
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

const RELEASE: &str = "\
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

const CHECK: &str = "return redis.pcall('GET', KEYS[1]) == ARGV[1] and 1 or 0";

/// The keys, and the token that asks for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Several where they are asked for in one step.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) token: Vec<u8>,
    /// The time from the grant before which a release does not end the hold.
    pub(crate) at_least: Option<Duration>,
}

/// The way in which a token asks for its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Lock,
    RwLock(Mode),
    /// One of so many holds.
    Permit(u32),
    /// All the keys, each in its mode.
    All(Vec<Mode>),
    /// The right to make the result under this key. A result that lives no longer than so many
    /// milliseconds is made anew.
    Once(Vec<u8>, u64),
}

pub(crate) static SHARE: Claim = Claim::RwLock(Mode::Shared);

impl Claim {
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::Lock | Self::Once(..) => Mode::Exclusive,
            Self::RwLock(mode) => *mode,
            Self::Permit(_) => Mode::Counted,
            Self::All(modes) if modes.contains(&Mode::Exclusive) => Mode::Exclusive,
            Self::All(_) => Mode::Shared,
        }
    }
}

/// A token that nobody else has.
pub(crate) fn new_token() -> Vec<u8> {
    uuid::Uuid::new_v4().simple().to_string().into_bytes()
}

impl Place {
    /// The first key. Messages name it.
    pub(crate) fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], Vec::as_slice)
    }

    /// Without the time that only a job which has begun keeps.
    pub(crate) fn without_job(&self) -> Self {
        Self {
            at_least: None,
            ..self.clone()
        }
    }

    /// The words of an acquire up to its way of waiting.
    pub(crate) fn acquire(&self, claim: &Claim, ttl: Duration, is_fallback: bool) -> Cmd {
        let name = match claim {
            _ if is_fallback => return self.script(SET).arg(millis(ttl)).to_owned(),
            Claim::All(modes) => return self.acquire_all(modes, ttl),
            Claim::RwLock(Mode::Shared) => "RWLOCK.RLOCK",
            Claim::RwLock(_) => "RWLOCK.WLOCK",
            Claim::Lock | Claim::Permit(_) => "LOCK.ACQUIRE",
            Claim::Once(result, early) => {
                let mut command = redis::cmd("LOCK.ONCE");
                command.arg(self.key()).arg(result).arg(&self.token);
                command.arg(millis(ttl)).arg("EARLY").arg(*early);
                return command;
            }
        };
        let mut command = self.command(name, self.key());
        command.arg(millis(ttl));
        if let Claim::Permit(permits) = claim {
            command.arg("LIMIT").arg(*permits);
        }
        command
    }

    fn acquire_all(&self, modes: &[Mode], ttl: Duration) -> Cmd {
        let mut command = redis::cmd("LOCK.MACQUIRE");
        command.arg(modes.len());
        for key in &self.keys {
            command.arg(key);
        }
        command.arg(self.token.as_slice()).arg(millis(ttl));
        command.arg("MODES");
        for mode in modes {
            command.arg(match mode {
                Mode::Shared => "SHARED",
                _ => "EXCLUSIVE",
            });
        }
        command
    }

    fn script(&self, script: &str) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(self.key()).arg(&self.token);
        command
    }

    pub(crate) fn release(&self, is_fallback: bool) -> Vec<Cmd> {
        self.each("LOCK.RELEASE", is_fallback.then_some(RELEASE), |command| {
            if let Some(at_least) = self.at_least {
                command.arg("ATLEAST").arg(millis(at_least));
            }
        })
    }

    pub(crate) fn renew(&self, ttl: Duration, is_fallback: bool) -> Vec<Cmd> {
        self.each("LOCK.RENEW", is_fallback.then_some(RENEW), |command| {
            command.arg(millis(ttl));
        })
    }

    pub(crate) fn check(&self, is_fallback: bool) -> Vec<Cmd> {
        self.each("LOCK.CHECK", is_fallback.then_some(CHECK), |_| {})
    }

    /// The same command, to be run only while the first key is held.
    pub(crate) fn exec(&self, inner: &Cmd) -> Cmd {
        let mut command = self.command("LOCK.EXEC", self.key());
        for arg in inner.args_iter() {
            match arg {
                Arg::Simple(word) => command.arg(word),
                // A scan from its begin.
                _ => command.arg(0),
            };
        }
        command
    }

    /// One command for each key, of which the fallback has one.
    fn each(&self, name: &str, script: Option<&str>, options: impl Fn(&mut Cmd)) -> Vec<Cmd> {
        let of = |key: &Vec<u8>| {
            let mut command = match script {
                Some(script) => self.script(script),
                None => self.command(name, key),
            };
            options(&mut command);
            command
        };
        self.keys.iter().map(of).collect()
    }

    fn command(&self, name: &str, key: &[u8]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(key).arg(self.token.as_slice());
        command
    }
}

/// What is between the first braces of a key, if there is anything. It decides the slot.
pub(crate) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = key.get(open.checked_add(1)?..)?;
    let close = rest.iter().position(|&byte| byte == b'}')?;
    rest.get(..close).filter(|tag| !tag.is_empty())
}

/// Whole milliseconds, rounded up: 0 would mean for ever where a time is waited for.
pub(crate) fn millis(time: Duration) -> u64 {
    let rounded = time.saturating_add(Duration::from_nanos(999_999));
    u64::try_from(rounded.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, 1 << 48)
}
