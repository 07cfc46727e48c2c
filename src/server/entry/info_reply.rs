//! The reply of LOCK.INFO.

use crate::server::api::{Context, Field};
use crate::server::clients::blocked_client::BlockedClient;
use redis_lock_core::command::info::Info;
use redis_lock_core::lock::{Hold, Mode, Now, TokenText};
use redis_lock_core::wait::{Listener, Waiter};

type Waiting<'w> = Waiter<'w, BlockedClient>;

/// Replies with the state of a lock at an instant of both clocks, and with its first waiters.
pub(in crate::server) fn send(
    ctx: Context<'_>,
    info: &Info<'_>,
    waiters: &[Waiting<'_>],
    now: Now,
    now_us: u64,
) {
    let holders = || {
        for (token, hold) in &info.holders {
            send_holder(ctx, token, hold, now);
        }
    };
    let all_waiters = || waiters.iter().for_each(|one| send_waiter(ctx, one, now_us));
    ctx.reply_fields(&[
        ("mode", Some(name(info.mode))),
        ("limit", limit(info.mode)),
        ("holders", Some(Field::Array(info.holders.len(), &holders))),
        ("waiters", Some(Field::Array(waiters.len(), &all_waiters))),
        // Behind the fields that were there before them, for readers that know the positions.
        (
            "holder-count",
            Some(Field::Integer(info.holder_count as u64)),
        ),
        (
            "waiter-count",
            Some(Field::Integer(info.waiter_count as u64)),
        ),
        ("guard", info.guard_ms.map(Field::Integer)),
    ]);
}

fn send_holder(ctx: Context<'_>, token: &TokenText<'_>, hold: &Hold, now: Now) {
    let ttl_ms = hold.deadline.remaining_ms(now.ms());
    ctx.reply_fields(&[
        ("token", Some(Field::Bytes(token.as_bytes()))),
        ("fence", Some(Field::Integer(hold.fence.get()))),
        ("ttl", Some(Field::Integer(ttl_ms))),
        ("since", Some(Field::Integer(hold.since.ms()))),
    ]);
}

fn send_waiter(ctx: Context<'_>, waiter: &Waiting<'_>, now_us: u64) {
    // Only for those who may read it.
    let may_read = |name: &&[u8]| ctx.may_read(name, ctx.selected_db());
    let result = waiter.result.filter(may_read);
    let waited_ms = now_us.saturating_sub(waiter.since_us) / 1_000;
    let (client, channel) = match waiter.listener {
        Some(Listener::Client(client)) => (Some(Field::Integer(client.id())), None),
        Some(Listener::Channel(name)) => (None, Some(Field::Bytes(name))),
        None => (None, None),
    };
    ctx.reply_fields(&[
        ("token", Some(Field::Bytes(waiter.token.as_bytes()))),
        ("mode", Some(name(Some(waiter.mode)))),
        ("limit", limit(Some(waiter.mode))),
        ("waited", Some(Field::Integer(waited_ms))),
        ("client", client),
        ("channel", channel),
        ("result", result.map(Field::Bytes)),
    ]);
}

/// The name of a mode. `None` is a lock that nobody holds.
pub(in crate::server) fn name(mode: Option<Mode>) -> Field<'static> {
    Field::Bytes(mode.map_or("free", Mode::name).as_bytes())
}

fn limit(mode: Option<Mode>) -> Option<Field<'static>> {
    let limit = mode.and_then(Mode::limit)?;
    Some(Field::Integer(limit.get().into()))
}
