//! A wait that closes a cycle of waits is refused, and the cycle is logged. The search itself is
//! [`crate::wait::cycle`].
//!
//! The request enters first, then the cycle is looked for, and if there is one, the request leaves
//! as if it had never come. The server opens one key at a time, and the opening of a key may run
//! another command of this module. So the search keeps no key open but the one that it looks at.

use std::ffi::CString;

use super::arrive::{Arrival, Stay};
use super::count::Count;
use super::host::{Host, Key, Parts, Purpose, Server};
use super::look::undisturbed;
use super::machine::Machine;
use super::printable::{escaped, line_of};
use crate::lock::{Now, Token};
use crate::wait::cycle::{CycleWait, Search, Verdict};

/// How much of a key's or a token's name is shown, in characters once it is escaped. A line of the
/// log has 1,024 at most.
const SHOWN: usize = 400;

/// How many waits of one cycle are logged.
const LOGGED: usize = 100;

/// How long nothing is logged after a cycle: a client may ask again and again.
const LOG_PAUSE_US: u64 = 100_000;

/// Whether a request that has arrived may be in a cycle, as far as can be told without its keys:
/// where nobody else waits for anything, there is none.
pub(super) fn is_suspect<S: Server>(
    server: S,
    machine: &Machine<S::Types>,
    arrival: &Arrival<S>,
) -> bool {
    arrival.came.is_some() && machine.registry.len() > 1 && server.detects_deadlocks()
}

/// Whether the wait of a request that has arrived may have closed a cycle, so that a search is
/// needed. The key is open.
pub(super) fn may_close<K: Key>(key: &mut K, arrival: &Arrival<K::Server>, now: Now) -> bool {
    let server = key.server();
    let Parts { lock, machine, .. } = key.parts();
    if !is_suspect(server, machine, arrival) {
        return false;
    }
    let may_close = machine.registry.may_close(arrival.keys.first(), lock, now);
    if may_close.is_none() {
        server.count(Count::DeadlockOverBudget);
    }
    may_close == Some(true)
}

/// The cycle that a token's waits are part of, if there is one. No key is open.
fn search<H: Host>(host: &mut H, token: Token<'_>) -> Option<Vec<CycleWait>> {
    let server = host.server();
    let db = server.selected_db();
    let now = server.command_time();
    let mut search = Search::new(token);
    while let Some(key_ref) = host.machine().registry.next_key(&mut search) {
        server.select_db(key_ref.db);
        let name = host.name(&key_ref.name);
        if let Ok(mut key) = host.open(&name, Purpose::Read) {
            let Parts { lock, machine, .. } = key.parts();
            machine.registry.follow_changes(&key_ref);
            machine.registry.look_at(&mut search, lock, now);
            continue;
        }
        host.machine().registry.look_at(&mut search, None, now);
    }
    server.select_db(db);
    match search.verdict() {
        Verdict::NoCycle => None,
        Verdict::Cycle(cycle) => Some(cycle),
        Verdict::OverBudget => {
            server.count(Count::DeadlockOverBudget);
            None
        }
    }
}

/// Has a request that has arrived leave again, if its wait has closed a cycle, and replies so. A
/// place without a listener that its token had ends, as with every refusal for good. False if it
/// stays, also where something has run each time that the cycle was looked for.
pub(super) fn refuse<H: Host>(
    host: &mut H,
    token: Token<'_>,
    arrival: &mut Arrival<H::Server>,
) -> bool {
    let found = undisturbed(host, |host| Ok(search(host, token)));
    let Some(cycle) = found.ok().flatten() else {
        return false;
    };
    let (server, machine) = (host.server(), host.machine());
    let came = arrival.came.take();
    // If it waits no more, it was granted meanwhile, or told something else.
    let Some(must_serve) = came.and_then(|came| machine.registry.take_back(came)) else {
        return false;
    };
    machine.is_due_changed = true;
    if must_serve {
        machine.registry.serve_later(arrival.keys.iter());
    }
    if let Stay::Blocked(client) = arrival.stay {
        server.abort(client);
    }
    tell(server, machine, &cycle);
    true
}

/// Counts a cycle, logs it, and replies with the error.
fn tell<S: Server>(server: S, machine: &mut Machine<S::Types>, cycle: &[CycleWait]) {
    server.count(Count::Deadlocks);
    server.count(Count::DeadlockCycles);
    log(server, &mut machine.cycle_logged_us, cycle);
    server.reply_error(&message(server, cycle));
}

fn log<S: Server>(server: S, logged_us: &mut Option<u64>, cycle: &[CycleWait]) {
    let now_us = server.monotonic_us();
    if logged_us.is_some_and(|us| now_us.saturating_sub(us) < LOG_PAUSE_US) {
        return;
    }
    *logged_us = Some(now_us);
    for (n, wait) in (1_usize..).zip(cycle).take(LOGGED) {
        let (token, key_ref) = (wait.token.text(), &wait.key_ref);
        let (token, key) = (
            escaped(token.as_bytes(), SHOWN),
            escaped(&key_ref.name, SHOWN),
        );
        let (len, db) = (cycle.len(), key_ref.db);
        let line = format!(
            "deadlock refused, wait {n} of {len}: token {token} waits for {key} in database {db}"
        );
        server.log(&line_of(line));
    }
}

/// The reply. It names no token, and no key but the one that was asked for and one that the user
/// may read: a cycle may go over the keys of other tenants.
fn message<S: Server>(server: S, cycle: &[CycleWait]) -> CString {
    let name = |wait: &CycleWait| escaped(&wait.key_ref.name, SHOWN);
    let asked = cycle.first().map_or_else(String::new, name);
    let held = cycle.last().filter(|wait| server.may_read(&wait.key_ref));
    let held = held.map_or_else(|| "another key".into(), name);
    let len = cycle.len();
    line_of(format!(
        "DEADLOCK a cycle of {len} waits: {asked} waits for a token that waits for {held}"
    ))
}
