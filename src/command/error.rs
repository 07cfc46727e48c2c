//! Every error that a command answers. No error contains bytes that the client sent.

use std::ffi::{CStr, CString};

use super::spec::Spec;
use crate::lock::Refusal;
use crate::wait::Full;

/// Why a command was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Too few or too many arguments. The reply names the command and shows its syntax.
    Arity,
    /// The ttl is not an integer from 1 to 2^48.
    Ttl,
    /// The ttl is longer than the setting `max-ttl`.
    TtlTooLong,
    /// The timeout is not an integer from 0 to 2^48.
    Timeout,
    /// An option that the command does not know.
    UnknownOption,
    /// An option that RWLOCK.RLOCK and RWLOCK.WLOCK do not know.
    UnknownRwOption,
    /// The limit is not an integer from 1 to 2^31 - 1.
    Limit,
    /// An option that was given twice.
    RepeatedOption,
    /// An option without its value.
    MissingValue,
    /// An option that LOCK.RELEASE does not know.
    UnknownReleaseOption,
    /// An option that LOCK.CANCEL does not know.
    UnknownCancelOption,
    /// The time of ATLEAST is missing, or is not an integer from 0 to 2^48.
    AtLeast,
    /// The number of keys is not an integer from 1 to 128.
    KeyCount,
    /// One of several keys was named twice.
    KeyTwice,
    /// MODES does not name a mode for each key.
    Modes,
    /// An option that LOCK.MACQUIRE does not know.
    UnknownOptionOfSeveral,
    /// The token holds some of several keys, or waits for some of them by another request.
    Partial,
    /// The number of LOCK.TOP is not an integer from 1.
    Count,
    /// A word after the number of LOCK.TOP that it does not know.
    UnknownTopOption,
    /// A number of LOCK.INFO is missing, or is not an integer from 0.
    ShownCount,
    /// An option that LOCK.INFO does not know.
    UnknownInfoOption,
    /// The number of LOCK.LOG is not an integer from 1.
    EntryCount,
    /// The token does not hold the lock.
    NotHeld,
    /// SELECT as the command of LOCK.EXEC.
    NoSelect,
    /// A command that scripts cannot call, as that of LOCK.EXEC.
    NotInScripts,
    /// The user may not run the command of LOCK.EXEC.
    NoPermission,
    /// BLOCK and NOTIFY in one request.
    ContradictingOptions,
    /// The grace is not an integer from 1 to 3,600,000.
    Grace,
    /// The grace is longer than the setting `max-keep`.
    GraceTooLong,
    /// The time of LINGER is not an integer from 0 to 2^48.
    Linger,
    /// LINGER in a script, or in a call that a module makes.
    LingerWithoutConnection,
    /// KEEP or NOTIFY with a token that the server generates.
    GeneratedToken,
    /// NOTIFY in a script or a function.
    NotifyInScript,
    /// NOTIFY in a cluster whose server has no shard channels.
    NotifyInCluster,
    /// The channel is in another slot than the key.
    CrossSlot,
    /// The name of the channel has more than 1,024 bytes.
    ChannelTooLong,
    /// The user may not publish to the channel.
    NoChannelPermission,
    /// `*` where an owner must be named.
    NoOwner,
    /// The token has no bytes.
    TokenEmpty,
    /// The token has more than 512 bytes.
    TokenTooLong,
    /// The key holds a value of another type.
    WrongType,
    /// Another token already waits to make its hold exclusive.
    Deadlock,
    /// The wait was ended by LOCK.CANCEL.
    Cancelled,
    /// As much waits as may wait.
    QueueFull(Full),
    /// The key has moved, or is moving, to another server.
    TryAgain,
    /// Too few replicas follow this server for a renewal now.
    NotYet,
    /// No fence is left below 2^53.
    FencesExhausted,
    /// An effect that comes neither from a primary nor from the append-only file.
    Internal,
    /// A command that only the module itself may call.
    ModuleOnly,
    /// An effect whose bytes cannot be decoded.
    BadEffect,
    /// The module is in the middle of another command, from which the server has called it again.
    Busy,
}

// Texts that are too long for a line of the list.
const MISSING_VALUE: &CStr =
    c"ERR a value is missing: LIMIT n, BLOCK timeout, NOTIFY timeout channel, KEEP grace, LINGER milliseconds";
const COUNT: &CStr = c"ERR the number of locks must be an integer from 1 to 18446744073709551615";
const SHOWN_COUNT: &CStr =
    c"ERR HOLDERS and WAITERS need an integer from 0 to 18446744073709551615";
const ENTRY_COUNT: &CStr =
    c"ERR the number of entries must be an integer from 1 to 18446744073709551615";
const LINGER: &CStr = c"ERR LINGER needs an integer from 0 to 281474976710656, in milliseconds";
const PARTIAL: &CStr =
    c"PARTIAL the token holds some of these locks or waits for some of them, release them first";
const GRACE_TOO_LONG: &CStr =
    c"ERR grace must be an integer from 1 to lock.max-keep, in milliseconds";
const LINGER_WITHOUT_CONNECTION: &CStr =
    c"ERR LINGER needs a client's connection: it is not allowed in scripts and in LOCK.EXEC";
const NO_PERMISSION: &CStr =
    c"NOPERM this user has no permissions to run the command or to use its keys or channels";
const NO_CHANNEL_PERMISSION: &CStr =
    c"NOPERM this user has no permissions to access one of the channels used as arguments";

const fn queue_full(full: Full) -> &'static CStr {
    match full {
        Full::Key => {
            c"QUEUEFULL too many clients wait for this lock (max-waiters-per-key), try again later"
        }
        Full::Server => c"QUEUEFULL too many clients wait for locks (max-waiters), try again later",
        Full::Absent => {
            c"QUEUEFULL nobody listens at too many places of this lock (max-absent), try again later"
        }
        Full::User => {
            c"QUEUEFULL too many clients of this user wait for locks (max-waiters-share), try again later"
        }
        Full::Bytes => {
            c"QUEUEFULL what waits takes too much memory (max-waiting-bytes), try again later"
        }
    }
}

impl Error {
    /// The reply to a waiter that can never be granted.
    pub const fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::FencesExhausted => Self::FencesExhausted,
            Refusal::Deadlock | Refusal::Busy | Refusal::BusyUpgrade => Self::Deadlock,
        }
    }

    /// The text of [`Error::Arity`] for a command. It begins as the server's own.
    pub fn arity_of(spec: &Spec) -> CString {
        let name = spec.name.to_string_lossy();
        let syntax = spec.syntax();
        let text = Self::Arity.message().to_string_lossy();
        let text = format!("{text} for '{name}' command, expected {syntax}");
        CString::new(text).unwrap_or_default()
    }

    /// The text for the client, which begins with the error code.
    pub const fn message(self) -> &'static CStr {
        match self {
            Self::Arity => c"ERR wrong number of arguments",
            Self::Ttl => c"ERR ttl must be an integer from 1 to 281474976710656, in milliseconds",
            Self::TtlTooLong => c"ERR ttl must not be above lock.max-ttl",
            Self::Timeout => {
                c"ERR timeout must be an integer from 0 to 281474976710656, in milliseconds"
            }
            Self::UnknownOption => {
                c"ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER"
            }
            Self::UnknownRwOption => c"ERR unknown option, expected BLOCK, NOTIFY, KEEP or LINGER",
            Self::Limit => c"ERR LIMIT needs an integer from 1 to 2147483647",
            Self::RepeatedOption => c"ERR an option was given twice",
            Self::MissingValue => MISSING_VALUE,
            Self::UnknownReleaseOption => c"ERR unknown option, expected ATLEAST",
            Self::UnknownCancelOption => c"ERR unknown option, expected TOKEN",
            Self::AtLeast => {
                c"ERR ATLEAST needs an integer from 0 to 281474976710656, in milliseconds"
            }
            Self::KeyCount => c"ERR numkeys must be an integer from 1 to 128",
            Self::KeyTwice => c"ERR a key was named twice",
            Self::Modes => c"ERR MODES needs EXCLUSIVE or SHARED for each key",
            Self::UnknownOptionOfSeveral => {
                c"ERR unknown option, expected MODES, BLOCK, NOTIFY, KEEP or LINGER"
            }
            Self::Partial => PARTIAL,
            Self::Count => COUNT,
            Self::UnknownTopOption => c"ERR unknown option, expected CONTENDED",
            Self::ShownCount => SHOWN_COUNT,
            Self::UnknownInfoOption => c"ERR unknown option, expected HOLDERS or WAITERS",
            Self::EntryCount => ENTRY_COUNT,
            Self::NotHeld => c"NOTHELD the token does not hold the lock, stop the work under it",
            Self::NoSelect => c"ERR SELECT is not allowed in LOCK.EXEC",
            Self::NotInScripts => c"ERR the command is not allowed on script mode",
            Self::NoPermission => NO_PERMISSION,
            Self::ContradictingOptions => c"ERR BLOCK and NOTIFY exclude each other",
            Self::Grace => c"ERR grace must be an integer from 1 to 3600000, in milliseconds",
            Self::GraceTooLong => GRACE_TOO_LONG,
            Self::Linger => LINGER,
            Self::LingerWithoutConnection => LINGER_WITHOUT_CONNECTION,
            Self::GeneratedToken => c"ERR KEEP and NOTIFY need a token of the client's own, not *",
            Self::NotifyInScript => c"ERR NOTIFY is not allowed in scripts",
            Self::NotifyInCluster => c"ERR NOTIFY needs Redis 7.0 or later in a cluster",
            Self::CrossSlot => {
                c"CROSSSLOT the channel must be a shard channel in the slot of the key"
            }
            Self::ChannelTooLong => c"ERR the channel is longer than 1024 bytes",
            Self::NoChannelPermission => NO_CHANNEL_PERMISSION,
            Self::NoOwner => c"ERR * is no token here, name the one that the acquire has returned",
            Self::TokenEmpty => c"ERR the token is empty",
            Self::TokenTooLong => c"ERR the token is longer than 512 bytes",
            Self::WrongType => c"WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::Deadlock => {
                c"DEADLOCK another holder already waits to become exclusive, release this hold"
            }
            Self::Cancelled => c"CANCELLED the wait was ended by LOCK.CANCEL",
            Self::QueueFull(full) => queue_full(full),
            Self::TryAgain => c"TRYAGAIN the key has moved or is moving to another node",
            Self::NotYet => {
                c"TRYAGAIN the guard lets no hold become longer now, this one stays as it was"
            }
            Self::FencesExhausted => c"ERR no fence is left below 2^53",
            Self::Internal => c"ERR this command is for replication and the append-only file only",
            Self::ModuleOnly => c"ERR this command is for the module itself only",
            Self::Busy => c"TRYAGAIN the module is in the middle of another command",
            Self::BadEffect => c"ERR the effect is malformed or of an unknown version",
        }
    }
}
