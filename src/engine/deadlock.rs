//! A wait that would close a cycle of waits is refused, and the cycle is logged. The search itself
//! is [`crate::wait::graph`].
//!
//! The server opens one key at a time, and the opening of a key may run another command of this
//! module. So the search keeps no key open but the one that it looks at, and afterwards the request
//! is decided anew.

use std::ffi::CString;

use super::count::Count;
use super::host::{Host, Key, Name, Parts, Purpose, Server};
use super::machine::Machine;
use super::printable::{escaped, line_of};
use super::serve;
use crate::command::acquire::{Acquire, Wait};
use crate::lock::{Now, Refusal, Token};
use crate::wait::graph::{self, Asked, CycleWait, Search, Verdict};
use crate::wait::{KeyRef, Keys};

/// How much of a key's or a token's name is shown, in characters once it is escaped. A line of the
/// log has 1,024 at most.
const SHOWN: usize = 400;

/// How many waits of one cycle are logged.
const LOGGED: usize = 100;

/// How long nothing is logged after a cycle: a client may ask again and again.
const LOG_PAUSE_US: u64 = 100_000;

/// The request, if it will wait, and its wait may close a cycle.
pub(super) fn suspect<K: Key>(
    key: &mut K,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    now: Now,
) -> Option<Asked> {
    if !acquire.may_stay() {
        return None;
    }
    let (server, name) = (key.server(), key.name());
    let Parts { lock, machine, .. } = key.parts();
    if machine.registry.is_empty() || !server.detects_deadlocks() {
        return None;
    }
    let (token, upgrades) = (acquire.ask().token, refusal == Refusal::BusyUpgrade);
    let at = (server.selected_db(), name.bytes());
    let may_close = graph::may_close(&machine.registry, at, token, upgrades, lock, now);
    if may_close == Some(false) || !will_wait(server, acquire) {
        return None;
    }
    if may_close.is_none() {
        server.count(Count::DeadlockOverBudget);
        return None;
    }
    Some(Asked {
        key_ref: KeyRef::new(at.0, at.1),
        mode: acquire.ask().mode,
        upgrades,
        by_channel: matches!(acquire.wait(), Some(Wait::Notify(..))),
    })
}

/// Whether a refused request waits, or leaves a place.
pub(super) fn will_wait<S: Server>(server: S, acquire: &Acquire<'_>) -> bool {
    let may_leave_a_place = match acquire.wait() {
        Some(Wait::Notify(..)) => true,
        _ => acquire.keep_ms().is_some(),
    };
    server.may_block() || may_leave_a_place && server.is_primary()
}

/// The cycle that a wait would close, if there is one. No key is open.
pub(super) fn search<H: Host>(
    host: &mut H,
    token: Token<'_>,
    asked: Vec<Asked>,
) -> Option<Vec<CycleWait>> {
    let server = host.server();
    let db = server.selected_db();
    let now = server.command_time();
    let mut search = Search::new(token, asked);
    while let Some(key_ref) = search.next_key(&host.machine().registry) {
        server.select_db(key_ref.db);
        let name = host.name(&key_ref.name);
        if let Ok(mut key) = host.open(&name, Purpose::Read) {
            let Parts { lock, machine, .. } = key.parts();
            machine.registry.follow_changes(&key_ref);
            search.look_at(&machine.registry, lock, now);
            continue;
        }
        search.look_at(&host.machine().registry, None, now);
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

/// Tells of the cycle that a wait for this key would close. A place without a listener that the
/// token has ends, as with every refusal for good.
pub(super) fn refuse<K: Key>(key: &mut K, token: Token<'_>, cycle: &[CycleWait]) {
    let (server, name) = (key.server(), key.name());
    let registry = &mut key.parts().machine.registry;
    if let Some(key_ref) = registry.key_ref(server.selected_db(), name.bytes()) {
        if registry
            .resume(&Keys::One(key_ref.clone()), token)
            .is_some()
        {
            server.count(Count::Resumed);
            serve::serve_changed(key, &key_ref, server.command_time());
        }
    }
    tell(server, key.parts().machine, cycle);
}

/// Counts a cycle, logs it, and replies with the error.
pub(super) fn tell<S: Server>(server: S, machine: &mut Machine<S::Types>, cycle: &[CycleWait]) {
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
