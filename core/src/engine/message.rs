//! How a wait has ended, as it is told: to a blocked client by its reply, and to a channel by one
//! message:
//!
//! ```text
//! event fence key-length key token
//! ```
//! `event` is `granted`, `result`, `timeout`, `tryagain`, `wrongtype`, `deadlock` or `cancelled`.
//! `fence` is 0 where there is none. The length of the key in bytes comes before it, because a key
//! may contain spaces.

use std::rc::Rc;

use crate::command::{Error, Reply};
use crate::lock::{Fence, Token};
use crate::wait::Delivery;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A hold is offered. It is granted if somebody receives the message.
    Granted(Fence),
    /// The result exists that it has waited for. It is not in the message.
    Result,
    /// The timeout has passed.
    TimedOut,
    /// It can never be granted here.
    Error(Error),
}

/// How a wait has ended, on its way to a blocked client.
#[derive(Debug)]
pub enum Outcome {
    /// A hold, and whether the reply carries the token that the server has generated for it.
    Granted(Delivery, bool),
    /// The result that it has waited for.
    Value(Rc<[u8]>),
    /// The timeout has passed, or the token has given its place up.
    Null,
    /// It can never be granted here.
    Error(Error),
}

impl Message {
    const fn name(self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::Result => "result",
            Self::TimedOut => "timeout",
            Self::Error(Error::WrongType) => "wrongtype",
            Self::Error(Error::Deadlock) => "deadlock",
            Self::Error(Error::Cancelled) => "cancelled",
            Self::Error(_) => "tryagain",
        }
    }

    /// The bytes that are published.
    pub fn bytes(self, key: &[u8], token: Token<'_>) -> Vec<u8> {
        let fence = match self {
            Self::Granted(fence) => fence.get(),
            _ => 0,
        };
        let head = format!("{} {fence} {} ", self.name(), key.len());
        [head.as_bytes(), key, b" ", token.as_bytes()].concat()
    }
}

impl Outcome {
    /// Sends the reply to the client.
    pub fn reply(&self, send: impl FnOnce(Reply<'_>)) {
        let text;
        send(match self {
            Self::Granted(granted, true) => {
                text = granted.token.text();
                Reply::Pair(text.as_bytes(), granted.fence)
            }
            Self::Granted(granted, false) => Reply::Fence(granted.fence),
            Self::Value(value) => Reply::Value(value),
            Self::Null => Reply::Null,
            Self::Error(error) => Reply::Error(*error),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_length_of_the_key_before_it() {
        let token = Token::new(b"my token").unwrap();
        let granted = Message::Granted(Fence::new(17).unwrap());
        assert_eq!(
            granted.bytes(b"a key", token),
            b"granted 17 5 a key my token"
        );
        for (message, name) in [
            (Message::Result, "result"),
            (Message::TimedOut, "timeout"),
            (Message::Error(Error::TryAgain), "tryagain"),
            (Message::Error(Error::FencesExhausted), "tryagain"),
            (Message::Error(Error::WrongType), "wrongtype"),
            (Message::Error(Error::Deadlock), "deadlock"),
            (Message::Error(Error::Cancelled), "cancelled"),
        ] {
            let bytes = message.bytes(b"", token);
            assert_eq!(bytes, format!("{name} 0 0  my token").as_bytes());
        }
    }
}
