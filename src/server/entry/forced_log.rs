//! LOCK.LOG: the last holds that were ended by force.

use crate::command::{log, Args, Error};
use crate::server::api::Context;
use crate::server::host::module::Task;
use crate::server::observe::forced::Entry;

pub(in crate::server) fn run(task: &mut Task<'_>) -> Result<(), Error> {
    let count = log::parse(Args::new(task.argv().after_name()))?;
    let ctx = task.ctx();
    let entries = task.module().forced.newest(count);
    ctx.reply_array(entries.len());
    entries.iter().for_each(|entry| reply(ctx, entry));
    Ok(())
}

fn reply(ctx: Context<'_>, entry: &Entry) {
    let bytes = |name: &[u8], value: Option<&[u8]>| {
        ctx.reply_bytes(name);
        match value {
            Some(value) => ctx.reply_bytes(value),
            None => ctx.reply_null(),
        }
    };
    let integer = |name: &[u8], value: Option<u64>| {
        ctx.reply_bytes(name);
        match value {
            Some(value) => ctx.reply_integer(value),
            None => ctx.reply_null(),
        }
    };
    let (oldest, client) = (entry.oldest.as_ref(), entry.client.as_ref());
    ctx.reply_map(11);
    integer(b"time", Some(entry.time_ms));
    integer(b"db", entry.db.and_then(|db| u64::try_from(db).ok()));
    bytes(b"key", entry.key.as_deref());
    bytes(b"token", oldest.map(|(token, _)| &**token));
    integer(b"fence", oldest.map(|(_, fence)| *fence));
    integer(b"holders", entry.holders.map(|holders| holders as u64));
    bytes(b"by", entry.by.as_deref());
    bytes(b"user", client.map(|client| &*client.user));
    bytes(b"address", client.map(|client| &*client.address));
    integer(b"client", client.map(|client| client.id));
    bytes(b"name", client.map(|client| &*client.name));
}
