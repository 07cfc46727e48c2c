//! What the answers of a server mean. One table of error words decides for all commands.

use redis::{RedisError, RedisResult, Value};

/// What is to be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// No server answered. Commands are sent again for [`Options::reconnect`](crate::Options::reconnect).
    Away,
    /// A wait goes on until its own time is over, and a renewal or a release until the lease is.
    Temporary,
    /// The same, at the server that is responsible by now.
    Elsewhere,
    /// The caller gets it at once.
    Final,
}

/// The words that are not final, as clients/vectors/errors.txt has them.
const TEMPORARY: [&str; 8] = [
    "LOADING",
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "TRYAGAIN",
    "OOM",
    "CLUSTERDOWN",
    "UNBLOCKED",
];
const ELSEWHERE: [&str; 4] = ["MASTERDOWN", "READONLY", "MOVED", "ASK"];

pub(crate) fn class(error: &RedisError) -> Class {
    match error.kind() {
        // Sentinels that elect a primary are as good as a server that is away.
        redis::ErrorKind::MasterNameNotFoundBySentinel => Class::Away,
        _ if is_unanswered(error) => Class::Away,
        _ if has_code(error, &TEMPORARY) => Class::Temporary,
        _ if has_code(error, &ELSEWHERE) => Class::Elsewhere,
        _ => Class::Final,
    }
}

/// Whether the server did not answer. It may have executed the command.
pub(crate) fn is_unanswered(error: &RedisError) -> bool {
    error.is_io_error() || matches!(error.kind(), redis::ErrorKind::Parse)
}

/// Whether another connection is to be asked next: this one is of no use, or its server may be no
/// primary. Holds that linger end with a connection, so nothing else closes one.
pub(crate) fn is_to_leave(error: &RedisError) -> bool {
    const CODES: [&str; 4] = ["READONLY", "MASTERDOWN", "UNBLOCKED", "LOADING"];
    is_unanswered(error) || has_code(error, &CODES)
}

/// Whether the key is no lock of the module: a client that uses `SET NX` holds it.
pub(crate) fn is_foreign(error: &RedisError) -> bool {
    has_code(error, &["WRONGTYPE"])
}

/// Whether the user lacks a right.
pub(crate) fn is_refused(error: &RedisError) -> bool {
    has_code(error, &["NOPERM"])
}

pub(crate) fn has_code(error: &RedisError, codes: &[&str]) -> bool {
    error.code().is_some_and(|code| codes.contains(&code))
}

/// Whether the server does not know the command. Proxies and hosted servers say so in words of
/// their own, some without a code.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    const SAYINGS: [&str; 5] = [
        "unknown command",
        "unknown redis command",
        "unsupported",
        "not supported",
        "not available",
    ];
    let code = error.code().unwrap_or_default();
    let is_of_another_kind = class(error) != Class::Final || is_refused(error) || is_foreign(error);
    let text = format!("{code} {}", error.detail().unwrap_or_default()).to_lowercase();
    // That of LOCK.EXEC may be unknown, too.
    let names_another = text.contains(['\'', '`']) && !text.contains("lock.");
    !is_of_another_kind && !names_another && SAYINGS.iter().any(|saying| text.contains(saying))
}

/// Whether a release, a renewal or a check did what it says.
pub(crate) fn owner_answer(answer: RedisResult<Value>) -> RedisResult<bool> {
    match answer {
        Ok(value) => Ok(!matches!(value, Value::Int(0) | Value::Nil)),
        // Another type was written over the key, which ended the hold.
        Err(error) if is_foreign(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What becomes of a hold that was just renewed, and whose token has asked for it once more, to be
/// bound to the connection that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Bound,
    /// Null is no loss: while a guard is on, the holder waits as others do. An answer that did not
    /// come says nothing against the hold either.
    NotBound,
    Over,
}

pub(crate) fn binding(fence: u64, answer: RedisResult<Value>) -> Binding {
    match answer {
        Ok(Value::Int(answered)) if u64::try_from(answered) == Ok(fence) => Binding::Bound,
        Ok(Value::Int(_)) => Binding::Over,
        Err(error) if has_code(&error, &["WRONGTYPE", "PARTIAL"]) => Binding::Over,
        _ => Binding::NotBound,
    }
}

#[cfg(test)]
pub(crate) mod tests;
