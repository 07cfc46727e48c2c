//! LOCK.LOG: the last holds that were ended by force.

use crate::server::api::{Context, Field};
use crate::server::host::module::Task;
use crate::server::observe::forced::Entry;
use redis_lock_core::command::{log, Args, Error};

pub(in crate::server) fn run(task: &mut Task<'_>) -> Result<(), Error> {
    let count = log::parse(Args::new(task.argv().after_name()))?;
    let ctx = task.ctx();
    let entries = task.module().forced.newest(count);
    ctx.reply_array(entries.len());
    entries.iter().for_each(|entry| reply(ctx, entry));
    Ok(())
}

fn reply(ctx: Context<'_>, entry: &Entry) {
    // A server that does not know the database cannot be asked for rights.
    let may_read = |key: &[u8]| entry.db.is_some_and(|db| ctx.may_read(key, db));
    let key = entry.key.as_deref().filter(|key| may_read(key));
    let (oldest, client) = (entry.oldest.as_ref(), entry.client.as_ref());
    ctx.reply_fields(&[
        ("time", integer(Some(entry.time_ms))),
        (
            "db",
            integer(entry.db.and_then(|db| u64::try_from(db).ok())),
        ),
        ("key", bytes(key)),
        ("token", bytes(key.and(oldest).map(|(token, _)| &**token))),
        ("fence", integer(oldest.map(|(_, fence)| *fence))),
        (
            "holders",
            integer(entry.holders.map(|holders| holders as u64)),
        ),
        ("by", bytes(entry.by.as_deref())),
        ("user", bytes(client.map(|client| &*client.user))),
        ("address", bytes(client.map(|client| &*client.address))),
        ("client", integer(client.map(|client| client.id))),
        ("name", bytes(client.map(|client| &*client.name))),
    ]);
}

fn bytes(value: Option<&[u8]>) -> Option<Field<'_>> {
    Some(value.map_or(Field::Null, Field::Bytes))
}

fn integer(value: Option<u64>) -> Option<Field<'static>> {
    Some(value.map_or(Field::Null, Field::Integer))
}
