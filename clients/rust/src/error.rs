use std::fmt;

use redis::RedisError;

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
    /// The server does not know the commands: the module is not loaded there.
    ModuleMissing(RedisError),
    /// The server answered with an error, or could not be reached.
    Redis(RedisError),
    /// An asynchronous client was made outside a tokio runtime.
    NoRuntime,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld => f.write_str("the lock is no longer held"),
            Self::Deadlock(text) => write!(f, "deadlock: {text}"),
            Self::ModuleMissing(error) => write!(
                f,
                "the server has not loaded the redis-lock module (loadmodule libredis_lock.so): {error}"
            ),
            Self::Redis(error) => error.fmt(f),
            Self::NoRuntime => f.write_str("there is no tokio runtime here"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ModuleMissing(error) | Self::Redis(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        match error.code() {
            Some("DEADLOCK") => Self::Deadlock(error.detail().unwrap_or_default().to_owned()),
            _ if is_unknown_command(&error) => Self::ModuleMissing(error),
            _ => Self::Redis(error),
        }
    }
}

/// Whether the server does not know the command.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.to_ascii_lowercase().starts_with("unknown command"))
}

/// Whether the key is no lock of the module: a client that uses `SET NX` holds it.
pub(crate) fn is_foreign(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

/// Whether the server does not know an option of this command: it is older than the option.
pub(crate) fn is_unknown_option(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.starts_with("unknown option"))
}

/// Whether the user may not use the channel (or the key, which another attempt will tell).
#[cfg(feature = "tokio")]
pub(crate) fn is_refused(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// Whether the server did not answer. It may have executed the command.
pub(crate) fn is_unanswered(error: &RedisError) -> bool {
    error.is_io_error() || matches!(error.kind(), redis::ErrorKind::Parse)
}

/// Whether the same command may succeed in a moment, here or on another server.
pub(crate) fn may_pass(error: &RedisError) -> bool {
    const CODES: [&str; 8] = [
        "UNBLOCKED",
        "TRYAGAIN",
        "MOVED",
        "ASK",
        "CLUSTERDOWN",
        "LOADING",
        "READONLY",
        "MASTERDOWN",
    ];
    is_unanswered(error) || error.code().is_some_and(|code| CODES.contains(&code))
}
