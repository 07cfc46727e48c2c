//! Channels: the listeners of requests with NOTIFY. The end of a wait is published as one message:
//!
//! ```text
//! event fence key-length key token
//! ```
//! `event` is `granted`, `timeout`, `tryagain`, `wrongtype` or `deadlock`. `fence` is 0 where there is none. The length of the key
//! in bytes comes before it, because a key may contain spaces.

use redis_module::raw;

use super::api::{Arg, Context, OwnedString};
use super::stats::counters::PUBLISHED;
use crate::command::Error;
use crate::lock::slot::slot_of;
use crate::lock::{Fence, Token};

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Granted(Fence),
    TimedOut,
    Error(Error),
}

impl Event {
    const fn name(self) -> &'static str {
        match self {
            Self::Granted(_) => "granted",
            Self::TimedOut => "timeout",
            Self::Error(Error::WrongType) => "wrongtype",
            Self::Error(Error::Deadlock) => "deadlock",
            Self::Error(_) => "tryagain",
        }
    }

    fn message(self, key: &[u8], token: Token<'_>) -> Vec<u8> {
        let fence = match self {
            Self::Granted(fence) => fence.get(),
            _ => 0,
        };
        let head = format!("{} {fence} {} ", self.name(), key.len());
        [head.as_bytes(), key, b" ", token.as_bytes()].concat()
    }
}

/// Checks that a request for a key may name a channel.
///
/// # Errors
/// Where NOTIFY is not possible at all, the channel is not in the key's slot, or the user may not publish to it.
pub(super) fn check(ctx: Context<'_>, key: Arg<'_>, channel: &[u8]) -> Result<(), Error> {
    if ctx.is_in_script() {
        return Err(Error::NotifyInScript);
    }
    if ctx.is_cluster() {
        // SAFETY: the static is not written after the load.
        if unsafe { raw::RedisModule_PublishMessageShard }.is_none() {
            return Err(Error::NotifyInCluster);
        }
        if slot_of(channel) != slot_of(key.bytes()) {
            return Err(Error::CrossSlot);
        }
    }
    if ctx.may_publish(channel) {
        Ok(())
    } else {
        Err(Error::NoChannelPermission)
    }
}

/// Publishes the end of a wait. True if somebody on this node receives it.
pub(super) fn publish(
    ctx: Context<'_>,
    channel: &[u8],
    event: Event,
    key: &[u8],
    token: Token<'_>,
) -> bool {
    let channel = OwnedString::new(ctx, channel);
    let message = OwnedString::new(ctx, &event.message(key, token));
    PUBLISHED.add_one();
    let (channel, message) = (channel.arg().as_ptr(), message.arg().as_ptr());
    // SAFETY: the statics are not written after the load.
    let (shard, plain) = unsafe {
        (
            raw::RedisModule_PublishMessageShard,
            raw::RedisModule_PublishMessage,
        )
    };
    let publish = if ctx.is_cluster() { shard } else { plain };
    // SAFETY: the context and both strings are alive. Publishing calls no module back.
    publish.is_some_and(|publish| unsafe { publish(ctx.as_ptr(), channel, message) } > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_length_of_the_key_before_it() {
        let token = Token::new(b"my token").unwrap();
        let granted = Event::Granted(Fence::new(17).unwrap());
        assert_eq!(
            granted.message(b"a key", token),
            b"granted 17 5 a key my token"
        );
        for (event, name) in [
            (Event::TimedOut, "timeout"),
            (Event::Error(Error::TryAgain), "tryagain"),
            (Event::Error(Error::FencesExhausted), "tryagain"),
            (Event::Error(Error::WrongType), "wrongtype"),
            (Event::Error(Error::Deadlock), "deadlock"),
        ] {
            let message = event.message(b"", token);
            assert_eq!(message, format!("{name} 0 0  my token").as_bytes());
        }
    }
}
