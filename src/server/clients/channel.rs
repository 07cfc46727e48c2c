//! Channels: the listeners of requests with NOTIFY.

use redis_module::raw;

use crate::server::api::{call, Arg, Caller, Context, OwnedString};
use crate::server::observe::stats::counters;
use redis_lock_core::command::Error;
use redis_lock_core::engine::{Count, Message};
use redis_lock_core::lock::slot::slot_of;
use redis_lock_core::lock::Token;

/// Checks that a request for a key may name a channel.
pub(in crate::server) fn check(
    ctx: Context<'_>,
    key: Arg<'_>,
    channel: &[u8],
) -> Result<(), Error> {
    if ctx.is_in_script() {
        return Err(Error::NotifyInScript);
    }
    if ctx.is_cluster() && slot_of(channel) != slot_of(key.bytes()) {
        return Err(Error::CrossSlot);
    }
    if ctx.may_publish(channel) {
        Ok(())
    } else {
        Err(Error::NoChannelPermission)
    }
}

/// Whether somebody at this node may receive a message. False is certain.
///
/// In a cluster a message also reaches subscribers at replicas, which do not count. So a node must
/// know that somebody listens here before it publishes a grant. If the server does not say, the
/// count of the receivers decides, as it does outside of a cluster.
pub(in crate::server) fn may_be_heard(caller: &mut Caller<'_>, channel: &[u8]) -> bool {
    let subscribers = match caller.context().is_cluster() {
        true => caller.shard_subscribers(channel),
        false => None,
    };
    subscribers != Some(0)
}

/// Publishes the end of a wait. True if somebody on this node receives it.
pub(in crate::server) fn publish(
    ctx: Context<'_>,
    channel: &[u8],
    message: Message,
    key: &[u8],
    token: Token<'_>,
) -> bool {
    let channel = OwnedString::new(ctx, channel);
    let message = OwnedString::new(ctx, &message.bytes(key, token));
    counters::add(Count::Published, 1);
    let (channel, message) = (channel.arg().as_ptr(), message.arg().as_ptr());
    let ctx_ptr = ctx.as_ptr();
    // SAFETY: the context and both strings are alive. Publishing calls no module back.
    let received = unsafe {
        match ctx.is_cluster() {
            true => call!(RedisModule_PublishMessageShard(ctx_ptr, channel, message)),
            false => call!(RedisModule_PublishMessage(ctx_ptr, channel, message)),
        }
    };
    received > 0
}
