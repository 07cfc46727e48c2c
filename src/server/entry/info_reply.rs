//! The reply of LOCK.INFO.

use crate::command::info::{Info, ShownListener};
use crate::lock::{Limit, Mode};
use crate::server::api::Context;

/// Replies with the state of a lock.
pub(in crate::server) fn send(ctx: Context<'_>, info: &Info<'_>) {
    let limit = info.mode.and_then(Mode::limit);
    let optional = [limit.is_some(), info.guard_ms.is_some()];
    let fields = optional.into_iter().filter(|is_there| *is_there).count();
    ctx.reply_map(fields.saturating_add(5));
    ctx.reply_bytes(b"mode");
    ctx.reply_bytes(info.mode.map_or("free", Mode::name).as_bytes());
    send_limit(ctx, limit);
    ctx.reply_bytes(b"holders");
    ctx.reply_array(info.holders.len());
    for holder in &info.holders {
        ctx.reply_map(4);
        ctx.reply_bytes(b"token");
        ctx.reply_bytes(holder.token.as_bytes());
        ctx.reply_bytes(b"fence");
        ctx.reply_integer(holder.fence.get());
        ctx.reply_bytes(b"ttl");
        ctx.reply_integer(holder.ttl_ms);
        ctx.reply_bytes(b"since");
        ctx.reply_integer(holder.since_ms);
    }
    ctx.reply_bytes(b"waiters");
    ctx.reply_array(info.waiters.len());
    for waiter in &info.waiters {
        let limit = waiter.mode.limit();
        let optional = [waiter.listener.is_some(), limit.is_some()];
        let fields = optional.into_iter().filter(|is_there| *is_there).count();
        ctx.reply_map(fields.saturating_add(3));
        ctx.reply_bytes(b"token");
        ctx.reply_bytes(waiter.token.as_token().as_bytes());
        ctx.reply_bytes(b"mode");
        ctx.reply_bytes(waiter.mode.name().as_bytes());
        send_limit(ctx, limit);
        ctx.reply_bytes(b"waited");
        ctx.reply_integer(waiter.waited_ms);
        match &waiter.listener {
            Some(ShownListener::Client(id)) => {
                ctx.reply_bytes(b"client");
                ctx.reply_integer(*id);
            }
            Some(ShownListener::Channel(name)) => {
                ctx.reply_bytes(b"channel");
                ctx.reply_bytes(name);
            }
            None => {}
        }
    }
    // Behind the fields that were there before them, for readers that know the positions.
    ctx.reply_bytes(b"holder-count");
    ctx.reply_integer(info.holder_count as u64);
    ctx.reply_bytes(b"waiter-count");
    ctx.reply_integer(info.waiter_count as u64);
    if let Some(ms) = info.guard_ms {
        ctx.reply_bytes(b"guard");
        ctx.reply_integer(ms);
    }
}

fn send_limit(ctx: Context<'_>, limit: Option<Limit>) {
    if let Some(limit) = limit {
        ctx.reply_bytes(b"limit");
        ctx.reply_integer(limit.get().into());
    }
}
