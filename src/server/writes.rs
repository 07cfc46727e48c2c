//! Whether the server would take a write from a client now, asked before a timer writes.
//!
//! The server refuses commands, not timers. A hold that a timer grants while clients get -MISCONF,
//! -NOREPLICAS or -CLUSTERDOWN is one that no file and no replica may ever know of. So the timer asks
//! before it grants, and grants nothing where a client could not write.
//!
//! The question is a write command of the module's own, `LOCK._WRITABLE [key]`, which does nothing. It is
//! called with the checks of a script. It cannot be renamed or switched off, as `rename-command` is read
//! before a module is loaded; and it is a write on the very key, as a node that is cut off from its cluster
//! may still answer reads (`cluster-allow-reads-when-down`).
//!
//! A question that cannot be asked counts as refused.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{
    calls_check_writes, Arg, CallError, CallReply, Caller, Checks, Context, Level, OwnedString,
};
use crate::command::writable;

/// The command that is the question.
const WRITABLE: &CStr = writable::SPEC.name;

/// Asks on 6.2, whose calls check nothing themselves. It answers text when the write is refused.
const ASK_BY_SCRIPT: &[u8] =
    b"local reply = redis.pcall('LOCK._WRITABLE') return type(reply) == 'table' and reply.err";

/// What is said at load on 6.2 when there is no EVAL to ask by.
const NO_EVAL: &CStr =
    c"EVAL is renamed: whether the server refuses writes is read from INFO and CONFIG GET; \
      if CONFIG is renamed too, no deadline hands a lock on while min-replicas-to-write is set, \
      nor after a save that failed";

/// Whether the module asks now: its command answers nobody else.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Whether there is no EVAL on a server that needs it.
static HAS_NO_EVAL: AtomicBool = AtomicBool::new(false);

/// Looks at load how this server can be asked.
pub(super) fn prepare(caller: &mut Caller<'_>) {
    if calls_check_writes() {
        return;
    }
    if eval(caller, b"return 1").is_err() {
        HAS_NO_EVAL.store(true, Ordering::Relaxed);
        caller.context().log(Level::Warning, NO_EVAL);
    }
}

/// Whether the command that asks was called by the module itself.
pub(super) fn is_asking() -> bool {
    ASKING.load(Ordering::Relaxed)
}

/// Whether the server refuses all writes for now: its disk fails (-MISCONF), too few replicas follow it
/// (-NOREPLICAS), or it is a replica (-READONLY).
pub(super) fn are_refused(caller: &mut Caller<'_>) -> bool {
    if calls_check_writes() {
        return asking(|| caller.call(WRITABLE, Checks::OfScripts, &[])).is_err();
    }
    if HAS_NO_EVAL.load(Ordering::Relaxed) {
        return are_refused_by_info(caller);
    }
    let reply = asking(|| eval(caller, ASK_BY_SCRIPT));
    reply.map_or(true, |reply| reply.part().text().is_some())
}

/// Whether this node serves a key, for writes, now and to everybody. In a cluster it does not while the
/// key's slot is on the way to another node, nor while the cluster is down.
pub(super) fn are_served_here(caller: &mut Caller<'_>, key: Arg<'_>) -> bool {
    !caller.context().is_cluster() || asking(|| caller.call(WRITABLE, Checks::Few, &[key])).is_ok()
}

fn asking<R>(ask: impl FnOnce() -> R) -> R {
    ASKING.store(true, Ordering::Relaxed);
    let answer = ask();
    ASKING.store(false, Ordering::Relaxed);
    answer
}

fn eval(caller: &mut Caller<'_>, script: &[u8]) -> Result<CallReply, CallError> {
    let ctx = caller.context();
    let (script, no_keys) = (OwnedString::new(ctx, script), OwnedString::new(ctx, b"0"));
    caller.call(c"EVAL", Checks::Few, &[script.arg(), no_keys.arg()])
}

/// The same from what 6.2 says of itself, where it has no EVAL: refused wherever it cannot be told.
fn are_refused_by_info(caller: &mut Caller<'_>) -> bool {
    let ctx: Context<'_> = caller.context();
    let says = |section, field, value: &CStr| {
        let is = ctx.server_info(section, field);
        is.is_some_and(|is| is.as_c_str() == value)
    };
    let mut is_set = |name, value: &[u8]| caller.config_value(name).is_some_and(|is| is == value);
    let save_fails = says(c"persistence", c"rdb_last_bgsave_status", c"err");
    let save_stops_writes = !is_set(c"stop-writes-on-bgsave-error", b"no") && !is_set(c"save", b"");
    // The status stays as it was when the operator gives the file up.
    let appends = !says(c"persistence", c"aof_enabled", c"0");
    let append_fails = appends && says(c"persistence", c"aof_last_write_status", c"err");
    if (save_fails && save_stops_writes) || append_fails {
        return true;
    }
    // The field is there only where the setting is.
    let Some(good) = ctx.server_info(c"replication", c"min_slaves_good_slaves") else {
        return false;
    };
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let needed = caller.config_value(c"min-replicas-to-write");
    match (number(good.to_bytes()), needed.as_deref().and_then(number)) {
        (Some(good), Some(needed)) => good < needed,
        _ => true,
    }
}
