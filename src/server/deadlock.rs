//! A wait that would close a cycle of waits is refused, and the cycle is logged. The search itself is [`crate::wait::graph`].
//!
//! The server opens one key at a time, and the opening of a key may run another command of this module. So the search keeps no key
//! open but the one that it looks at, and afterwards the request is decided anew.

use std::ffi::CString;

use super::api::{Context, Level, OwnedString, Purpose};
use super::clock;
use super::config::DEADLOCK_DETECTION;
use super::lock_key::{Key, Parts};
use super::module::{State, Task};
use super::printable::{escaped, line_of};
use super::serve;
use super::stats::counters::{DEADLOCKS, DEADLOCK_CYCLES, DEADLOCK_OVER_BUDGET, RESUMED};
use crate::command::acquire::{Acquire, Wait};
use crate::lock::{Now, Refusal, Token};
use crate::wait::graph::{self, Asked, CycleWait, Search, Verdict};
use crate::wait::KeyRef;

/// How much of a key's or a token's name is shown, in characters once it is escaped. A line of the log has 1,024 at most.
const SHOWN: usize = 400;

/// How many waits of one cycle are logged.
const LOGGED: usize = 100;

/// How long nothing is logged after a cycle: a client may ask again and again.
const LOG_PAUSE_US: u64 = 100_000;

/// The request, if it will wait, and its wait may close a cycle.
pub(super) fn suspect(
    key: &mut Key<'_, '_>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    now: Now,
) -> Option<Asked> {
    if acquire.wait().is_none() && acquire.keep_ms().is_none() || !DEADLOCK_DETECTION.is_on() {
        return None;
    }
    let (ctx, name) = (key.ctx(), key.name());
    let Parts { lock, state, .. } = key.parts();
    if state.registry.is_empty() {
        return None;
    }
    let (token, upgrades) = (acquire.ask().token, refusal == Refusal::BusyUpgrade);
    let at = (ctx.selected_db(), name.bytes());
    let may_close = graph::may_close(&state.registry, at, token, upgrades, lock, now);
    if may_close == Some(false) || !will_wait(ctx, acquire) {
        return None;
    }
    if may_close.is_none() {
        DEADLOCK_OVER_BUDGET.add_one();
        return None;
    }
    Some(Asked {
        key_ref: KeyRef::new(at.0, at.1),
        mode: acquire.ask().mode,
        upgrades,
    })
}

/// Whether a refused request waits, or leaves a place.
pub(super) fn will_wait(ctx: Context<'_>, acquire: &Acquire<'_>) -> bool {
    let may_leave_a_place = match acquire.wait() {
        Some(Wait::Notify(..)) => true,
        _ => acquire.keep_ms().is_some(),
    };
    ctx.may_block() || may_leave_a_place && ctx.is_primary()
}

/// The cycle that a wait would close, if there is one. No key is open.
pub(super) fn search(
    task: &mut Task<'_>,
    token: Token<'_>,
    asked: Vec<Asked>,
) -> Option<Vec<CycleWait>> {
    let ctx = task.ctx();
    let db = ctx.selected_db();
    let now = clock::of_command();
    let mut search = Search::new(token, asked);
    while let Some(key_ref) = search.next_key(&task.state().registry) {
        ctx.select_db(key_ref.db);
        let name = OwnedString::new(ctx, &key_ref.name);
        if let Ok(mut key) = Key::open(task, name.arg(), Purpose::Read) {
            let Parts { lock, state, .. } = key.parts();
            search.look_at(&state.registry, lock, now);
            continue;
        }
        search.look_at(&task.state().registry, None, now);
    }
    ctx.select_db(db);
    match search.verdict() {
        Verdict::NoCycle => None,
        Verdict::Cycle(cycle) => Some(cycle),
        Verdict::OverBudget => {
            DEADLOCK_OVER_BUDGET.add_one();
            None
        }
    }
}

/// Tells of the cycle that a wait for this key would close. A place without a listener that the token has ends, as with every refusal
/// for good.
pub(super) fn refuse(key: &mut Key<'_, '_>, token: Token<'_>, cycle: &[CycleWait]) {
    let (ctx, name) = (key.ctx(), key.name());
    let registry = &mut key.parts().state.registry;
    if let Some(key_ref) = registry.key_ref(ctx.selected_db(), name.bytes()) {
        if registry.resume(&key_ref, token).is_some() {
            RESUMED.add_one();
            serve::serve_changed(key, &key_ref, clock::of_command());
        }
    }
    tell(ctx, key.parts().state, cycle);
}

/// Counts a cycle, logs it, and replies with the error.
pub(super) fn tell(ctx: Context<'_>, state: &mut State, cycle: &[CycleWait]) {
    DEADLOCKS.add_one();
    DEADLOCK_CYCLES.add_one();
    log(ctx, &mut state.cycle_logged_us, cycle);
    ctx.reply_error(&message(cycle));
}

fn log(ctx: Context<'_>, logged_us: &mut Option<u64>, cycle: &[CycleWait]) {
    let now_us = clock::monotonic_us();
    if logged_us.is_some_and(|us| now_us.saturating_sub(us) < LOG_PAUSE_US) {
        return;
    }
    *logged_us = Some(now_us);
    for (n, wait) in (1_usize..).zip(cycle).take(LOGGED) {
        let (token, key_ref) = (wait.token(), &wait.key_ref);
        let (token, key) = (
            escaped(token.as_bytes(), SHOWN),
            escaped(&key_ref.name, SHOWN),
        );
        let (len, db) = (cycle.len(), key_ref.db);
        let line = format!(
            "deadlock refused, wait {n} of {len}: token {token} waits for {key} in database {db}"
        );
        ctx.log_escaped(Level::Notice, &line_of(line));
    }
}

/// The reply. It names no key and no token but those that the client knows.
fn message(cycle: &[CycleWait]) -> CString {
    let name = |wait: Option<&CycleWait>| {
        wait.map_or_else(String::new, |wait| escaped(&wait.key_ref.name, SHOWN))
    };
    let (asked, held) = (name(cycle.first()), name(cycle.last()));
    let len = cycle.len();
    line_of(format!(
        "DEADLOCK a cycle of {len} waits: {asked} waits for a token that waits for {held}"
    ))
}
