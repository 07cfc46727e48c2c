//! What a token holds now: LOCK.CHECK, and LOCK.EXEC before and after its command runs.

use super::command::serve_waiters;
use super::guarding;
use super::host::{key_ref_of, Host, Key, Purpose, Server};
use crate::command::{Error, Reply};
use crate::lock::{Hold, Now, Token};
use crate::planted::planted;

/// The hold of a token that it may use now. One whose connection is lost (LINGER), or of which
/// nobody has heard, is over, though the timer has not ended it yet.
#[inline]
fn usable_hold<H: Host>(host: &mut H, token: Token<'_>) -> Result<Option<Hold>, Error> {
    let mut key = host.open_key(Purpose::Read)?;
    let usable = guarding::usable(&mut key);
    let now = key.server().command_time();
    let is_over = key.shared().bindings.has_lost() && is_lost(&key, token, now);
    let lock = usable.of(key.lock().filter(|_| !is_over), token, now);
    let hold = lock.and_then(|lock| lock.hold_of(token, now));
    Ok(hold.map(|(_, hold)| hold))
}

#[cold]
fn is_lost<K: Key>(key: &K, token: Token<'_>, now: Now) -> bool {
    let key_ref = key_ref_of(key);
    let own = key.lock().and_then(|lock| lock.hold_of(token, now));
    own.is_some_and(|(_, hold)| {
        let bindings = &key.shared().bindings;
        bindings.look(|all| all.is_over(&key_ref, hold.fence, now))
    })
}

/// LOCK.CHECK.
///
/// # Errors
/// If the key has a value of another type.
pub fn check<H: Host>(host: &mut H, token: Token<'_>) -> Result<(), Error> {
    let hold = usable_hold(host, token)?;
    let reply = hold.map_or(Reply::Null, |hold| Reply::Fence(hold.fence));
    host.server().reply(reply);
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
    let hold = usable_hold(host, token)?;
    hold.map(|_| ()).ok_or(Error::NotHeld)
}

/// Serves the lock of LOCK.EXEC, whose command may have written a result.
pub fn serve_results<H: Host>(host: &mut H) {
    if !host.machine().registry.has_results() {
        return;
    }
    if let Ok(mut key) = host.open_key(Purpose::Write) {
        serve_waiters(&mut key, false);
    }
}
