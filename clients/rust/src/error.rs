use redis::RedisError;

use crate::replies::{Class, class, is_unknown_command};

/// The result of an operation on a lock.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why an operation on a lock failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The token no longer holds the lock. It expired, or was forced away.
    #[error("the lock is no longer held")]
    NotHeld,
    /// The wait would never end, because the holder waits for this token. The text is the server's.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The wait was ended from outside, by LOCK.CANCEL. Nothing is held.
    #[error("the wait was cancelled by LOCK.CANCEL")]
    Cancelled,
    /// The server does not know the commands: the module is not loaded there. With
    /// [`Options::fallback`](crate::Options::fallback): what was asked for is not in the fallback.
    #[error("{}", missing(.0))]
    ModuleMissing(#[source] RedisError),
    /// The keys of several locks, or of a lock and of a command under it, have more than one slot of
    /// the cluster.
    #[error(
        "in a cluster all the keys of one lock or command must have one slot: give them the same {{tag}}: {0}"
    )]
    CrossSlot(#[source] RedisError),
    /// The ttl ([`Options::ttl`](crate::Options::ttl), `with_ttl`, `extend`, `at_most` of `run_once`) is
    /// longer than the server's setting `lock.max-ttl`.
    #[error("the ttl (of `Options`, `with_ttl`, `extend` or `at_most`) is too long: {0}")]
    TtlTooLong(#[source] RedisError),
    /// A permit, or a hold on several locks, cannot be turned from exclusive to shared or back.
    #[error("only a hold on one lock can be converted")]
    NoConversion,
    /// Another caller of [`once`](crate::locks::LockClient::once) makes the value, and the wait is over.
    #[error("another caller is making the value, and the wait is over")]
    InProgress,
    /// The server answered with an error, or could not be reached.
    #[error("{0}")]
    Redis(#[source] RedisError),
    /// An asynchronous client was used outside a tokio runtime.
    #[error("there is no tokio runtime here")]
    NoRuntime,
}

/// Says which feature the server or the fallback lacks, and what to do about it.
fn missing(error: &RedisError) -> String {
    match error.detail().unwrap_or("this") {
        what if error.code().is_none() => format!(
            "{what} is not available in the fallback, and the server has no redis-lock module"
        ),
        _ if names(error, "lock.once") => format!(
            "the server does not know LOCK.ONCE, which this needs and has no fallback for. Load the module \
             redis-lock, from 0.4.0 on, by `loadmodule /path/libredis_lock.so` in its configuration, and restart \
             the server: {error}"
        ),
        _ => format!(
            "the server has no redis-lock module. Load it by `loadmodule /path/libredis_lock.so` in its \
             configuration, and restart the server. Where modules cannot be loaded, `Options::fallback` takes \
             locks by SET NX and Lua, without a fair queue, fences, readers-writers, counted and several \
             locks, guarded commands and least times: {error}"
        ),
    }
}

/// Whether an error of the server is about this command.
pub(crate) fn names(error: &RedisError, command: &str) -> bool {
    error.to_string().to_ascii_lowercase().contains(command)
}

impl Error {
    /// Whether the server may answer, or say something else, in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Redis(error) if class(error) != Class::Final)
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
