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

use crate::command::{integer, writable};
use crate::lock::slot::key_in;
use crate::server::api::{
    is_7_0, Arg, CallError, CallReply, Caller, Context, Level, OwnedString, ServerInfo,
};

/// The command by which the module asks.
const WRITABLE: &CStr = writable::SPEC.name;

/// The name of the keys that stand for their slots. They do not exist.
const ABSENT_KEY: &str = "redis-lock:slot:";

/// The script that asks on 6.2, where calls make no checks. It returns text if the write is
/// refused.
const ASK_BY_SCRIPT: &[u8] =
    b"local reply = redis.pcall('LOCK._WRITABLE') return type(reply) == 'table' and reply.err";

/// The log line at load on 6.2 if there is no EVAL.
const NO_EVAL: &CStr =
    c"EVAL is renamed: the module reads from INFO and CONFIG GET whether the server refuses writes; \
      if CONFIG is renamed too, it grants nothing at a deadline while min-replicas-to-write is set, \
      or after a failed save";

/// Whether the module is asking. Otherwise its command returns an error.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Whether there is no EVAL on a server that needs it.
static HAS_NO_EVAL: AtomicBool = AtomicBool::new(false);

/// Finds out at load how to ask this server.
pub(in crate::server) fn prepare(caller: &mut Caller<'_>) {
    if is_7_0() {
        return;
    }
    if eval(caller, b"return 1").is_err() {
        HAS_NO_EVAL.store(true, Ordering::Relaxed);
        caller.context().log(Level::Warning, NO_EVAL);
    }
}

/// Whether the module itself has called the command.
pub(in crate::server) fn is_asking() -> bool {
    ASKING.load(Ordering::Relaxed)
}

/// Whether the server refuses all writes now: its disk fails (-MISCONF), it has too few replicas
/// (-NOREPLICAS), or it is a replica (-READONLY).
pub(in crate::server) fn are_refused(caller: &mut Caller<'_>) -> bool {
    if is_7_0() {
        return asking(|| caller.call_as_script(WRITABLE)).is_err();
    }
    if HAS_NO_EVAL.load(Ordering::Relaxed) {
        return are_refused_by_info(caller);
    }
    let reply = asking(|| eval(caller, ASK_BY_SCRIPT));
    reply.map_or(true, |reply| reply.part().text().is_some())
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

fn eval(caller: &mut Caller<'_>, script: &[u8]) -> Result<CallReply, CallError> {
    caller.call_with(c"EVAL", &[script, b"0"])
}

/// The same on 6.2 without EVAL, from INFO and CONFIG GET. True if they do not tell.
fn are_refused_by_info(caller: &mut Caller<'_>) -> bool {
    let ctx: Context<'_> = caller.context();
    let says = |section, field, value: &CStr| {
        let is = ServerInfo::field_of(ctx, section, field);
        is.is_some_and(|is| is.as_c_str() == value)
    };
    let mut is_set = |name, value: &[u8]| caller.config_value(name).is_some_and(|is| is == value);
    let save_fails = says(c"persistence", c"rdb_last_bgsave_status", c"err");
    let save_stops_writes = !is_set(c"stop-writes-on-bgsave-error", b"no") && !is_set(c"save", b"");
    // The status keeps its last value after the operator has disabled the file.
    let appends = !says(c"persistence", c"aof_enabled", c"0");
    let append_fails = appends && says(c"persistence", c"aof_last_write_status", c"err");
    if (save_fails && save_stops_writes) || append_fails {
        return true;
    }
    // The field exists only if the setting does.
    let Some(good) = ServerInfo::field_of(ctx, c"replication", c"min_slaves_good_slaves") else {
        return false;
    };
    let needed = caller.config_value(c"min-replicas-to-write");
    match (
        integer(good.to_bytes()),
        needed.as_deref().and_then(integer),
    ) {
        (Some(good), Some(needed)) => good < needed,
        _ => true,
    }
}
