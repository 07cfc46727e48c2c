//! The commands of the module, and the replies that need reading.

use std::time::Duration;

use redis::{Arg, Cmd, ToRedisArgs};

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
    /// The token is the caller's own, so others may have asked by it before.
    pub(crate) is_callers: bool,
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

    /// The words of an acquire up to its way of waiting.
    pub(crate) fn acquire(&self, claim: &Claim, ttl: Duration, is_fallback: bool) -> Cmd {
        let key = self.key();
        let mut command = match claim {
            _ if is_fallback => self.script(SET),
            Claim::Lock | Claim::Permit(_) => self.command("LOCK.ACQUIRE", key),
            Claim::RwLock(Mode::Shared) => self.command("RWLOCK.RLOCK", key),
            Claim::RwLock(_) => self.command("RWLOCK.WLOCK", key),
            Claim::Once(result, _) => self.command("LOCK.ONCE", (key, result)),
            Claim::All(modes) => self.command("LOCK.MACQUIRE", (modes.len(), &self.keys)),
        };
        command.arg(millis(ttl));
        match claim {
            Claim::Permit(permits) => command.arg("LIMIT").arg(*permits),
            Claim::Once(_, early) => command.arg("EARLY").arg(*early),
            Claim::All(modes) => {
                let word = |mode| match mode {
                    &Mode::Shared => "SHARED",
                    _ => "EXCLUSIVE",
                };
                let words: Vec<_> = modes.iter().map(word).collect();
                command.arg("MODES").arg(words)
            }
            Claim::Lock | Claim::RwLock(_) => &command,
        };
        command
    }

    pub(crate) fn release(&self, is_fallback: bool) -> Vec<Cmd> {
        let at_least = self.at_least.map(|time| ("ATLEAST", millis(time)));
        self.each("LOCK.RELEASE", is_fallback.then_some(RELEASE), at_least)
    }

    pub(crate) fn renew(&self, ttl: Duration, is_fallback: bool) -> Vec<Cmd> {
        let ttl = Some(millis(ttl));
        self.each("LOCK.RENEW", is_fallback.then_some(RENEW), ttl)
    }

    pub(crate) fn check(&self, is_fallback: bool) -> Vec<Cmd> {
        self.each("LOCK.CHECK", is_fallback.then_some(CHECK), None::<u64>)
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
    fn each(&self, name: &str, script: Option<&str>, options: impl ToRedisArgs) -> Vec<Cmd> {
        let of = |key: &Vec<u8>| {
            let command = script.map(|script| self.script(script));
            let mut command = command.unwrap_or_else(|| self.command(name, key));
            command.arg(&options).take()
        };
        self.keys.iter().map(of).collect()
    }

    fn script(&self, script: &str) -> Cmd {
        self.command("EVAL", (script, 1, self.key()))
    }

    fn command(&self, name: &str, about: impl ToRedisArgs) -> Cmd {
        redis::cmd(name).arg(about).arg(&self.token).take()
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
    time.as_nanos().div_ceil(1_000_000).clamp(1, 1 << 48) as u64
}
