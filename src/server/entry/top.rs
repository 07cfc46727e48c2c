//! LOCK.TOP: the locks that others have waited for the longest, now or since the last reset.

use super::info_reply;
use crate::command::info::Info;
use crate::command::{top, Args, Error};
use crate::engine::host::{Key as _, Purpose};
use crate::lock::{Mode, Now, TokenBuf};
use crate::server::api::clock;
use crate::server::api::{Context, Field, OwnedString};
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
        .and_then(|key| Info::of(key.lock(), key.deadline(now), 1, 0, None, now));
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
    ctx.reply_fields(&[
        ("key", Some(Field::Bytes(&waits.key_ref.name))),
        ("waits", Some(Field::Integer(waits.count))),
        ("waited", Some(Field::Integer(waits.total_us / 1_000))),
        ("longest", Some(Field::Integer(waits.longest_us / 1_000))),
        (
            "error",
            Some(Field::Integer(waits.error_us.div_ceil(1_000))),
        ),
    ]);
}

fn reply(ctx: Context<'_>, line: &TopRow) {
    let (token, held_ms) = line
        .oldest
        .as_ref()
        .map_or((Field::Null, 0), |(token, ms)| {
            (Field::Bytes(token.as_token().as_bytes()), *ms)
        });
    ctx.reply_fields(&[
        ("key", Some(Field::Bytes(&line.key_ref.name))),
        ("mode", Some(info_reply::name(line.mode))),
        ("holders", Some(Field::Integer(line.holders as u64))),
        ("waiters", Some(Field::Integer(line.waiters as u64))),
        ("waited", Some(Field::Integer(line.waited_ms))),
        ("token", Some(token)),
        ("held", Some(Field::Integer(held_ms))),
    ]);
}
