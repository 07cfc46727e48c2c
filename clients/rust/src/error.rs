use std::fmt;

use redis::RedisError;

use crate::replies::{Class, class, is_unanswered, is_unknown_command};

/// The result of an operation on a lock.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an operation on a lock failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The token no longer holds the lock. It expired, or was forced away.
    NotHeld,
    /// The wait would never end, because the holder waits for this token. The text is the server's.
    Deadlock(String),
    /// The wait was ended from outside, by LOCK.CANCEL. Nothing is held.
    Cancelled,
    /// The server does not know the commands: the module is not loaded there. With
    /// [`Options::fallback`](crate::Options::fallback): what was asked for is not in the fallback.
    ModuleMissing(RedisError),
    /// The keys of several locks, or of a lock and of a command under it, have more than one slot of
    /// the cluster.
    CrossSlot(RedisError),
    /// The ttl ([`Options::ttl`](crate::Options::ttl), `with_ttl`, `extend`, `at_most` of `run_once`) is
    /// longer than the server's setting `lock.max-ttl`.
    TtlTooLong(RedisError),
    /// A permit, or a hold on several locks, cannot be turned from exclusive to shared or back.
    NoConversion,
    /// Another caller of [`once`](crate::locks::LockClient::once) makes the value, and the wait is over.
    InProgress,
    /// The server answered with an error, or could not be reached.
    Redis(RedisError),
    /// An asynchronous client was used outside a tokio runtime.
    NoRuntime,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => f.write_str("the lock is no longer held"),
            Self::Deadlock(text) => write!(f, "deadlock: {text}"),
            Self::Cancelled => f.write_str("the wait was cancelled by LOCK.CANCEL"),
            Self::ModuleMissing(error) if error.code().is_none() => write!(
                f,
                "{} is not available in the fallback, and the server has no redis-lock module",
                error.detail().unwrap_or("this")
            ),
            Self::ModuleMissing(error) if names(error, "lock.once") => write!(
                f,
                "the server does not know LOCK.ONCE, which this needs and has no fallback for. Load the module \
                 redis-lock, from 0.4.0 on, by `loadmodule /path/libredis_lock.so` in its configuration, and restart \
                 the server: {error}"
            ),
            Self::ModuleMissing(error) => write!(
                f,
                "the server has no redis-lock module. Load it by `loadmodule /path/libredis_lock.so` in its \
                 configuration, and restart the server. Where modules cannot be loaded, `Options::fallback` takes \
                 locks by SET NX and Lua, without a fair queue, fences, readers-writers, counted and several \
                 locks, guarded commands and least times: {error}"
            ),
            Self::CrossSlot(error) => write!(
                f,
                "in a cluster all the keys of one lock or command must have one slot: give them the same \
                 {{tag}}: {error}"
            ),
            Self::TtlTooLong(error) => write!(
                f,
                "the ttl (of `Options`, `with_ttl`, `extend` or `at_most`) is too long: {error}"
            ),
            Self::InProgress => {
                f.write_str("another caller is making the value, and the wait is over")
            }
            Self::NoConversion => f.write_str("only a hold on one lock can be converted"),
            Self::Redis(error) => error.fmt(f),
            Self::NoRuntime => f.write_str("there is no tokio runtime here"),
        }
    }
}

/// Whether an error of the server is about this command.
pub(crate) fn names(error: &RedisError, command: &str) -> bool {
    error.to_string().to_ascii_lowercase().contains(command)
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ModuleMissing(error)
            | Self::Redis(error)
            | Self::CrossSlot(error)
            | Self::TtlTooLong(error) => Some(error),
            _ => None,
        }
    }
}

impl Error {
    /// Whether the server has answered, and may say something else in a moment.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, Self::Redis(error) if !matches!(class(error), Class::Away | Class::Final))
    }

    /// Whether the server may answer, or say something else, in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Redis(error) if class(error) != Class::Final)
    }

    /// Whether a connection ended before the answer came.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, Self::Redis(error) if is_unanswered(error) && !error.is_timeout())
    }

    /// Of something that only the module has.
    pub(crate) fn not_in_fallback(what: &str) -> Self {
        let kind = redis::ErrorKind::Client;
        let error = (kind, "not available in the fallback", what.to_owned());
        Self::ModuleMissing(error.into())
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        match error.code() {
            Some("DEADLOCK") => Self::Deadlock(error.detail().unwrap_or_default().to_owned()),
            Some("NOTHELD") => Self::NotHeld,
            Some("CANCELLED") => Self::Cancelled,
            Some("CROSSSLOT") => Self::CrossSlot(error),
            _ if error.detail() == Some("ttl must not be above lock.max-ttl") => {
                Self::TtlTooLong(error)
            }
            _ if is_unknown_command(&error) => Self::ModuleMissing(error),
            _ => Self::Redis(error),
        }
    }
}
