//! Whether the server would accept a write from a client now. The timer asks this before it writes.
//!
//! The server refuses writes of commands, but not those of timers. While clients get -MISCONF,
//! -NOREPLICAS or -CLUSTERDOWN, a grant by the timer might never reach a file or a replica. So the
//! timer grants nothing while a client could not write.
//!
//! To ask, the module calls its own command `LOCK._WRITABLE [key]` with the checks of a script. The
//! command does nothing. It cannot be renamed or disabled, because the server reads
//! `rename-command` before it loads a module. It counts as a write of the key, because a node that
//! is cut off from its cluster may still answer reads (`cluster-allow-reads-when-down`).
//!
//! If the module cannot ask, it assumes that writes are refused.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::api::{Arg, Caller, OwnedString};
use redis_lock_core::command::writable;
use redis_lock_core::lock::slot::key_in;

/// The command by which the module asks.
const WRITABLE: &CStr = writable::SPEC.name;

/// The name of the keys that stand for their slots. They do not exist.
const ABSENT_KEY: &str = "redis-lock:slot:";

/// Whether the module is asking. Otherwise its command returns an error.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Whether the module itself has called the command.
pub(in crate::server) fn is_asking() -> bool {
    ASKING.load(Ordering::Relaxed)
}

/// Whether the server refuses all writes now: its disk fails (-MISCONF), it has too few replicas
/// (-NOREPLICAS), or it is a replica (-READONLY).
pub(in crate::server) fn are_refused(caller: &mut Caller<'_>) -> bool {
    asking(|| caller.call_as_script(WRITABLE)).is_err()
}

/// Whether this node accepts writes of a key now, from every client. In a cluster it does not while
/// the key's slot is moving to another node, or while the cluster is down.
pub(in crate::server) fn are_served_here(caller: &mut Caller<'_>, key: Arg<'_>) -> bool {
    !caller.context().is_cluster() || asking(|| caller.call(WRITABLE, &[key])).is_ok()
}

/// Whether this node accepts writes of every key of a slot now, also of those that do not exist. So
/// it does not where the slot is moving to another node and some keys may still be here.
pub(in crate::server) fn is_slot_served_here(caller: &mut Caller<'_>, slot: u16) -> bool {
    let Some(absent) = key_in(ABSENT_KEY, |other| other == slot) else {
        return false;
    };
    let absent = OwnedString::new(caller.context(), &absent);
    are_served_here(caller, absent.arg())
}

fn asking<R>(ask: impl FnOnce() -> R) -> R {
    ASKING.store(true, Ordering::Relaxed);
    let answer = ask();
    ASKING.store(false, Ordering::Relaxed);
    answer
}
