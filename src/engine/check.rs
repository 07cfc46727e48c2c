//! What a token holds now: LOCK.CHECK, and LOCK.EXEC before its command runs.

use super::guarding;
use super::host::{Host, Key, Purpose, Server};
use crate::command::check::Check;
use crate::command::Error;
use crate::lock::Token;
use crate::planted::planted;

/// LOCK.CHECK.
///
/// # Errors
/// If the key has a value of another type.
pub fn check<H: Host>(host: &mut H, check: &Check<'_>) -> Result<(), Error> {
    let usable = guarding::usable(host);
    let key = host.open_key(Purpose::Read)?;
    let server = key.server();
    let now = server.command_time();
    let lock = usable.of(key.lock(), check.token(), now);
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
    let key = host.open_key(Purpose::Read)?;
    let now = key.server().command_time();
    let lock = usable.of(key.lock(), token, now);
    let hold = lock.and_then(|lock| lock.hold_of(token, now));
    hold.map(|_| ()).ok_or(Error::NotHeld)
}
