//! LOCK.CANCEL: the waits and the places of a lock end. Nothing is replicated, because waits are
//! not.

use super::command::{end_waits, key_to_change, serve_waiters};
use super::commit::repair_ttl;
use super::ending;
use super::host::{Host, Key, Server};
use crate::command::{Error, Reply};
use crate::lock::Token;

/// Ends those of one token, or all, and replies how many there were.
pub fn run<H: Host>(host: &mut H, token: Option<Token<'_>>) -> Result<(), Error> {
    let server = host.server();
    let mut key = key_to_change(host)?;
    let (key_ref, now) = serve_waiters(&mut key, false);
    repair_ttl(&mut key, now);
    let mut count = 0;
    if let Some(key_ref) = key_ref {
        let registry = &mut key.parts().machine.registry;
        let removed;
        (count, removed) = match token {
            Some(token) => {
                let removed = registry.give_up(&key_ref, token);
                (removed.len(), removed)
            }
            None => registry.cancel(&key_ref),
        };
        key.parts().machine.is_due_changed = true;
        end_waits(&mut key, &key_ref, removed, now, |machine, removed| {
            ending::tell(server, machine, removed, Some(Error::Cancelled));
        });
    }
    server.reply(Reply::Count(count));
    Ok(())
}
