//! What a token holds now: LOCK.CHECK, and LOCK.EXEC before its command runs.

use super::guard::usable::Usable;
use super::guarding;
use super::host::{key_ref_of, Host, Key, Parts, Purpose, Server};
use crate::command::check::Check;
use crate::command::Error;
use crate::lock::{Lock, Now, Token};
use crate::planted::planted;

/// A lock whose hold of a token may be used. One whose connection is lost (LINGER) is over, though
/// the timer has not ended it yet.
#[inline]
fn usable_lock<'k, K: Key>(
    key: &'k mut K,
    usable: Usable,
    token: Token<'_>,
    now: Now,
) -> Option<&'k Lock> {
    let is_over = key.shared().bindings.has_lost() && is_lost(key, token, now);
    usable.of(key.lock().filter(|_| !is_over), token, now)
}

#[cold]
fn is_lost<K: Key>(key: &mut K, token: Token<'_>, now: Now) -> bool {
    let key_ref = key_ref_of(key);
    let Parts {
        lock,
        machine,
        shared,
        ..
    } = key.parts();
    let own = lock.and_then(|lock| lock.hold_of(token, now));
    own.is_some_and(|(_, hold)| {
        let bindings = &shared.bindings;
        let is_over = bindings.look(|all| all.is_over(&key_ref, hold.fence, now));
        is_over && !machine.registry.deliveries.is_under_way(hold.fence)
    })
}

/// LOCK.CHECK.
///
/// # Errors
/// If the key has a value of another type.
pub fn check<H: Host>(host: &mut H, check: &Check<'_>) -> Result<(), Error> {
    let usable = guarding::usable(host);
    let mut key = host.open_key(Purpose::Read)?;
    let server = key.server();
    let now = server.command_time();
    let lock = usable_lock(&mut key, usable, check.token(), now);
    server.reply(check.reply(lock, now));
    Ok(())
}

/// Whether a token may run a command by LOCK.EXEC.
///
/// # Errors
/// If it does not hold the lock.
pub fn must_hold<H: Host>(host: &mut H, token: Token<'_>) -> Result<(), Error> {
    if planted("exec-without-a-check") {
        return Ok(());
    }
    let usable = guarding::usable(host);
    let mut key = host.open_key(Purpose::Read)?;
    let now = key.server().command_time();
    let lock = usable_lock(&mut key, usable, token, now);
    let hold = lock.and_then(|lock| lock.hold_of(token, now));
    hold.map(|_| ()).ok_or(Error::NotHeld)
}
