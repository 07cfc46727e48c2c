//! LOCK.TOP: the locks that others have waited for the longest, now or since the last reset.

use super::info_reply;
use crate::server::api::clock;
use crate::server::api::{Context, Field, OwnedString};
use crate::server::host::lock_key::Key;
use crate::server::host::module::Task;
use redis_lock_core::command::info::Info;
use redis_lock_core::command::{top, Args, Error};
use redis_lock_core::engine::host::{Key as _, Purpose};
use redis_lock_core::lock::{Mode, Now, TokenBuf};
use redis_lock_core::wait::{KeyRef, Waits};

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
    // Before the reply begins: a key that has expired goes when it is opened, and some servers tell
    // a client that tracks it at once, even in the middle of a reply.
    let keys = waited.iter();
    let found: Vec<_> = keys.map(|(key, ..)| holders_of(task, key, now)).collect();
    ctx.reply_array(waited.len());
    for ((key_ref, waiters, since_us), (mode, holders, oldest)) in waited.iter().zip(&found) {
        let oldest = oldest.as_ref();
        let token = oldest.map_or(Field::Null, |(token, _)| {
            Field::Bytes(token.as_token().as_bytes())
        });
        let held_ms = oldest.map_or(0, |(_, ms)| *ms);
        let waited_ms = now_us.saturating_sub(*since_us) / 1_000;
        ctx.reply_fields(&[
            ("key", Some(Field::Bytes(&key_ref.name))),
            ("mode", Some(info_reply::name(*mode))),
            ("holders", Some(Field::Integer(*holders as u64))),
            ("waiters", Some(Field::Integer(*waiters as u64))),
            ("waited", Some(Field::Integer(waited_ms))),
            ("token", Some(token)),
            ("held", Some(Field::Integer(held_ms))),
        ]);
    }
    Ok(())
}

/// The mode of a lock, how many hold it, and its oldest holder with the time that it has held.
fn holders_of(
    task: &mut Task<'_>,
    key_ref: &KeyRef,
    now: Now,
) -> (Option<Mode>, usize, Option<(TokenBuf, u64)>) {
    let name = OwnedString::new(task.ctx(), &key_ref.name);
    let key = Key::open(task, name.arg(), Purpose::Read).ok();
    let info = key
        .as_ref()
        .and_then(|key| Info::of(key.lock(), key.deadline(), 1, 0, None, now));
    let Some(info) = info else {
        return (None, 0, None);
    };
    let oldest = info.holders.first().map(|(token, hold)| {
        let held_ms = now.ms().saturating_sub(hold.since.ms());
        (TokenBuf::from(token.as_token()), held_ms)
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
