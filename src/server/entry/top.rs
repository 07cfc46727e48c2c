//! LOCK.TOP: the locks that others have waited for the longest, now or since the last reset.

use crate::command::info::Info;
use crate::command::{top, Args, Error};
use crate::engine::host::{Key as _, Purpose};
use crate::lock::{Mode, Now, TokenBuf};
use crate::server::api::clock;
use crate::server::api::{Context, OwnedString};
use crate::server::host::lock_key::Key;
use crate::server::host::module::Task;
use crate::wait::{KeyRef, Waits};

/// What is told of a lock.
struct TopRow {
    key_ref: KeyRef,
    mode: Option<Mode>,
    holders: usize,
    waiters: usize,
    waited_ms: u64,
    /// The oldest holder, and for how long it has held.
    oldest: Option<(TokenBuf, u64)>,
}

pub(in crate::server) fn run(task: &mut Task<'_>) -> Result<(), Error> {
    let top = top::parse(Args::new(task.argv().after_name()))?;
    let ctx = task.ctx();
    if top.is_contended {
        let contended = &task.machine().contended;
        let waits = contended.of_db(ctx.selected_db(), top.count);
        ctx.reply_array(waits.len());
        waits.iter().for_each(|waits| reply_contended(ctx, waits));
        return Ok(());
    }
    let (now, now_us) = (clock::of_command(), clock::monotonic_us());
    let registry = &mut task.machine().registry;
    let waited = registry.longest_waits(ctx.selected_db(), top.count);
    let mut lines = Vec::with_capacity(waited.len());
    for (key_ref, waiters, since_us) in waited {
        let (mode, holders, oldest) = holders_of(task, &key_ref, now);
        lines.push(TopRow {
            key_ref,
            mode,
            holders,
            waiters,
            waited_ms: now_us.saturating_sub(since_us) / 1_000,
            oldest,
        });
    }
    ctx.reply_array(lines.len());
    lines.iter().for_each(|line| reply(ctx, line));
    Ok(())
}

/// The mode of a lock, how many hold it, and its oldest holder.
fn holders_of(
    task: &mut Task<'_>,
    key_ref: &KeyRef,
    now: Now,
) -> (Option<Mode>, usize, Option<(TokenBuf, u64)>) {
    let name = OwnedString::new(task.ctx(), &key_ref.name);
    let key = Key::open(task, name.arg(), Purpose::Read).ok();
    let info = key
        .as_ref()
        .and_then(|key| Info::of(key.lock(), key.deadline(now), 1, (Vec::new(), 0), None, now));
    let Some(info) = info else {
        return (None, 0, None);
    };
    let oldest = info.holders.first().map(|holder| {
        let held_ms = now.ms().saturating_sub(holder.since_ms);
        (TokenBuf::from(holder.token.as_token()), held_ms)
    });
    (info.mode, info.holder_count, oldest)
}

fn reply_contended(ctx: Context<'_>, waits: &Waits) {
    ctx.reply_map(5);
    ctx.reply_bytes(b"key");
    ctx.reply_bytes(&waits.key_ref.name);
    let integers: [(&[u8], u64); 4] = [
        (b"waits", waits.count),
        (b"waited", waits.total_us / 1_000),
        (b"longest", waits.longest_us / 1_000),
        (b"error", waits.error_us.div_ceil(1_000)),
    ];
    for (name, n) in integers {
        ctx.reply_bytes(name);
        ctx.reply_integer(n);
    }
}

fn reply(ctx: Context<'_>, line: &TopRow) {
    let integer = |name: &[u8], n: u64| {
        ctx.reply_bytes(name);
        ctx.reply_integer(n);
    };
    ctx.reply_map(7);
    ctx.reply_bytes(b"key");
    ctx.reply_bytes(&line.key_ref.name);
    ctx.reply_bytes(b"mode");
    ctx.reply_bytes(line.mode.map_or("free", Mode::name).as_bytes());
    integer(b"holders", line.holders as u64);
    integer(b"waiters", line.waiters as u64);
    integer(b"waited", line.waited_ms);
    ctx.reply_bytes(b"token");
    match &line.oldest {
        Some((token, _)) => ctx.reply_bytes(token.as_token().as_bytes()),
        None => ctx.reply_null(),
    }
    integer(
        b"held",
        line.oldest.as_ref().map_or(0, |(_, held_ms)| *held_ms),
    );
}
