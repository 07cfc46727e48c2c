//! Every error that a command answers. No error contains bytes that the client sent.

use std::ffi::{CStr, CString};

use super::spec::Spec;
use crate::lock::Refusal;
use crate::wait::LimitMet;

/// Makes [`Error`] from rows of `Variant = text for the client`.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Why a command was refused. Nothing has changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Error {
            $(
                #[doc = concat!("`", $text, "`\n")]
                $(#[$doc])*
                $name,
            )*
            /// As much waits as may wait.
            QueueFull(LimitMet),
        }

        impl Error {
            /// The text for the client, which begins with the error code.
            pub const fn message(self) -> &'static CStr {
                match self {
                    $(Self::$name => const { c_str(concat!($text, "\0")) },)*
                    Self::QueueFull(full) => queue_full(full),
                }
            }
        }
    };
}

errors! {
    /// The reply names the command and shows its syntax, too.
    Arity = "ERR wrong number of arguments";
    Ttl = "ERR ttl must be an integer from 1 to 281474976710656, in milliseconds";
    TtlTooLong = "ERR ttl must not be above lock.max-ttl";
    Timeout = "ERR timeout must be an integer from 0 to 281474976710656, in milliseconds";
    UnknownOption = "ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER";
    UnknownRwOption = "ERR unknown option, expected BLOCK, NOTIFY, KEEP or LINGER";
    UnknownOnceOption = "ERR unknown option, expected EARLY, BLOCK, NOTIFY, KEEP or LINGER";
    Early = "ERR EARLY needs an integer from 0 to 281474976710656, in milliseconds";
    OwnToken = "ERR LOCK.ONCE needs a token of the client's own, not *";
    SameKeys = "ERR the lock and the result must be two keys";
    Limit = "ERR LIMIT needs an integer from 1 to 2147483647";
    RepeatedOption = "ERR an option was given twice";
    MissingValue =
        "ERR a value is missing: LIMIT n, BLOCK timeout, NOTIFY timeout channel, KEEP grace, LINGER milliseconds";
    UnknownReleaseOption = "ERR unknown option, expected ATLEAST";
    UnknownCancelOption = "ERR unknown option, expected TOKEN";
    AtLeast = "ERR ATLEAST needs an integer from 0 to 281474976710656, in milliseconds";
    KeyCount = "ERR numkeys must be an integer from 1 to 128";
    KeyTwice = "ERR a key was named twice";
    Modes = "ERR MODES needs EXCLUSIVE or SHARED for each key";
    UnknownOptionOfSeveral = "ERR unknown option, expected MODES, BLOCK, NOTIFY, KEEP or LINGER";
    Partial =
        "PARTIAL the token holds some of these locks or waits for some of them, release them first";
    Count = "ERR the number of locks must be an integer from 1 to 18446744073709551615";
    UnknownTopOption = "ERR unknown option, expected CONTENDED";
    ShownCount = "ERR HOLDERS and WAITERS need an integer from 0 to 18446744073709551615";
    UnknownInfoOption = "ERR unknown option, expected HOLDERS or WAITERS";
    EntryCount = "ERR the number of entries must be an integer from 1 to 18446744073709551615";
    NotHeld = "NOTHELD the token does not hold the lock, stop the work under it";
    NoSelect = "ERR SELECT is not allowed in LOCK.EXEC";
    /// A command that scripts cannot call, as that of LOCK.EXEC.
    NotInScripts = "ERR the command is not allowed on script mode";
    /// The user may not run the command of LOCK.EXEC.
    NoPermission =
        "NOPERM this user has no permissions to run the command or to use its keys or channels";
    ContradictingOptions = "ERR BLOCK and NOTIFY exclude each other";
    Grace = "ERR grace must be an integer from 1 to 3600000, in milliseconds";
    GraceTooLong = "ERR grace must be an integer from 1 to lock.max-keep, in milliseconds";
    Linger = "ERR LINGER needs an integer from 0 to 281474976710656, in milliseconds";
    LingerWithoutConnection =
        "ERR LINGER needs a client's connection: it is not allowed in scripts and in LOCK.EXEC";
    GeneratedToken = "ERR KEEP and NOTIFY need a token of the client's own, not *";
    NotifyInScript = "ERR NOTIFY is not allowed in scripts";
    CrossSlot = "CROSSSLOT the channel must be a shard channel in the slot of the key";
    ChannelTooLong = "ERR the channel is longer than 1024 bytes";
    NoChannelPermission =
        "NOPERM this user has no permissions to access one of the channels used as arguments";
    NoOwner = "ERR * is no token here, name the one that the acquire has returned";
    TokenEmpty = "ERR the token is empty";
    TokenTooLong = "ERR the token is longer than 512 bytes";
    WrongType = "WRONGTYPE Operation against a key holding the wrong kind of value";
    Deadlock = "DEADLOCK another holder already waits to become exclusive, release this hold";
    Cancelled = "CANCELLED the wait was ended by LOCK.CANCEL";
    /// Something has run while the request was decided or carried out.
    Changed = "TRYAGAIN the keys have changed meanwhile";
    TryAgain = "TRYAGAIN the key has moved or is moving to another node";
    /// Too few replicas follow this server for a renewal now.
    NotYet = "TRYAGAIN the guard lets no hold become longer now, this one stays as it was";
    FencesExhausted = "ERR no fence is left below 2^53";
    /// An effect that comes neither from a primary nor from the append-only file.
    Internal = "ERR this command is for replication and the append-only file only";
    ModuleOnly = "ERR this command is for the module itself only";
    BadEffect = "ERR the effect is malformed or of an unknown version";
    /// The server has called the module again from that command.
    Busy = "TRYAGAIN the module is in the middle of another command";
}

/// A text with its NUL.
const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

const fn queue_full(full: LimitMet) -> &'static CStr {
    match full {
        LimitMet::Key => {
            c"QUEUEFULL too many clients wait for this lock (max-waiters-per-key), try again later"
        }
        LimitMet::Server => c"QUEUEFULL too many clients wait for locks (max-waiters), try again later",
        LimitMet::Absent => {
            c"QUEUEFULL nobody listens at too many places of this lock (max-absent), try again later"
        }
        LimitMet::User => {
            c"QUEUEFULL too many clients of this user wait for locks (max-waiters-share), try again later"
        }
        LimitMet::Place => c"QUEUEFULL 100 requests of this token wait for this lock, try again later",
        LimitMet::Conversions => {
            c"QUEUEFULL 1000 tokens wait to convert their holds of this lock, try again later"
        }
        LimitMet::Bytes => {
            c"QUEUEFULL what waits takes too much memory (max-waiting-bytes), try again later"
        }
    }
}

impl Error {
    /// The reply to a waiter that can never be granted.
    pub const fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::FencesExhausted => Self::FencesExhausted,
            Refusal::TtlTooLong => Self::TtlTooLong,
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
}
