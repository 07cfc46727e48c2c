//! What happens without a command: deadlines, timeouts, and keys that others have changed. The timer calls it when something
//! is due.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::api::{OwnedString, Purpose};
use super::clock;
use super::commit::Cause;
use super::linger;
use super::lock_key::Key;
use super::module::{wait_ended, State, Task};
use super::serve::{dismiss_all, end_wait, serve_changed, watch};
use super::several;
use super::stats::counters::{PASSED_OVER, TIMED_OUT};
use super::timer::LONGEST_SLEEP_US;
use super::writes;
use crate::command::Error;
use crate::lock::{Effect, Lock, Now};
use crate::wait::{KeyRef, Revoked, ANY_DB};

/// How many waited keys the patrol looks at in [`LONGEST_SLEEP_US`]. With more of them, each has its turn later.
const PATROL: usize = 1_000;

/// How many keys of lost connections are looked at in one go.
const MOST_LOST: usize = 1_000;

/// How soon the timer looks again while the server is paused.
const PAUSED_US: u64 = 10_000;

/// How soon the timer looks again while the server refuses writes, which may last for hours.
const REFUSED_US: u64 = 50_000;

/// Does all that is due, and sets the timer again.
pub(super) fn run(task: &mut Task<'_>) {
    let pause_us = do_due(task);
    let state = task.state();
    let is_due = state.registry.has_work() || state.sweep.due_at_us().is_some();
    match pause_us.filter(|_| is_due) {
        // What is due stays due: without a rest the timer would fire in every turn of the server's event loop.
        Some(pause_us) => {
            state.is_due_changed = false;
            task.module().timer.arm_in(pause_us);
        }
        None => {
            state.is_due_changed = true;
            if task.module().bindings.has_untold() {
                task.module().timer.arm_at_once();
            }
        }
    }
}

/// Does what can be done now. Answers for how long the server must be left alone, if it takes no writes.
fn do_due(task: &mut Task<'_>) -> Option<u64> {
    task.module().inbox.forget_left_locks();
    if std::mem::take(&mut task.state().has_config_changed) {
        task.module().replies.look_at_config(task.caller());
    }
    end_timed_out(task);
    task.state().registry.mark_woken(clock::now());
    for key_ref in task.module().bindings.next_untold(MOST_LOST) {
        let registry = &mut task.state().registry;
        registry.mark_anyway(Some(key_ref.db), &key_ref.name);
    }
    check_slots(task);
    let ctx = task.ctx();
    if std::mem::take(&mut task.state().was_demoted) {
        dismiss_everybody(task);
    }
    if !ctx.is_primary() {
        stand_down(task);
        return None;
    }
    if ctx.must_not_write() {
        return Some(PAUSED_US);
    }
    patrol(task);
    let State {
        sweep, registry, ..
    } = task.state();
    sweep.step(ctx, registry);
    if !task.state().registry.has_work() {
        return None;
    }
    if writes::are_refused(task.caller()) {
        return Some(REFUSED_US);
    }
    let mut touched = BTreeSet::new();
    for (key_ref, revoked) in take_work(task) {
        if look_at(task, &key_ref, revoked) {
            touched.insert(key_ref);
        }
    }
    several::finish_in_timer(task, touched);
    None
}

/// Answers the requests whose time is over, and ends the places whose grace is.
fn end_timed_out(task: &mut Task<'_>) {
    let ctx = task.ctx();
    let now_us = clock::monotonic_us();
    let State {
        registry,
        contended,
        ..
    } = task.state();
    for removed in registry.take_timed_out(now_us) {
        wait_ended(contended, &removed, now_us);
        // The waiter behind it may be next.
        registry.mark(removed.key_ref.db, &removed.key_ref.name);
        match removed.listener {
            Some(_) => TIMED_OUT.add_one(),
            None => PASSED_OVER.add_one(),
        }
        end_wait(ctx, removed);
    }
}

/// Sends all waiters away from a server that is a replica, or was one: another primary decides, or may have decided. Most servers have
/// told the blocked clients. Valkey 9.1 has not: it leaves clients blocked that can be redirected.
fn dismiss_everybody(task: &mut Task<'_>) {
    let ctx = task.ctx();
    let state = task.state();
    for key_ref in state.registry.waited_keys() {
        dismiss_all(ctx, state, &key_ref, Error::TryAgain);
    }
}

/// Leaves all to the new primary.
fn stand_down(task: &mut Task<'_>) {
    dismiss_everybody(task);
    let state = task.state();
    state.registry.take_dirty();
    state.registry.deliveries.clear_revoked();
    state.sweep.cancel();
    task.module().bindings.clear();
}

/// Looks at some of the keys that are waited for: nothing tells of PEXPIRE and PERSIST.
fn patrol(task: &mut Task<'_>) {
    let state = task.state();
    let now_us = clock::monotonic_us();
    if now_us.saturating_sub(state.patrolled_us) < LONGEST_SLEEP_US {
        return;
    }
    state.patrolled_us = now_us;
    let ctx = task.ctx();
    for key_ref in task.state().registry.next_of_patrol(PATROL) {
        ctx.select_db(key_ref.db);
        let name = OwnedString::new(ctx, &key_ref.name);
        let now = clock::now();
        let is_watched = match Key::open(task, name.arg(), Purpose::Write) {
            Ok(mut key) if key.lock().is_some() && key.deadline(now).is_some() => {
                watch(&mut key, &key_ref, now);
                true
            }
            _ => false,
        };
        if !is_watched {
            task.state().registry.mark(key_ref.db, &key_ref.name);
        }
    }
}

/// Sends away the waiters of keys that this node does not serve any more, though it may have them still.
fn check_slots(task: &mut Task<'_>) {
    let ctx = task.ctx();
    if !task.state().must_check_slots(clock::monotonic_us()) || !ctx.is_cluster() {
        return;
    }
    task.state().registry.mark_put_off();
    for key_ref in task.state().registry.waited_keys() {
        let name = OwnedString::new(ctx, &key_ref.name);
        if !writes::are_served_here(task.caller(), name.arg()) {
            dismiss_all(ctx, task.state(), &key_ref, Error::TryAgain);
        }
    }
}

/// Takes the keys that are to be looked at, each with the holds that are to be revoked there.
///
/// Each key comes once. On 6.2 the deletion of a key that has expired overtakes what the same timer has replicated, so a key must
/// not be opened again after a change.
fn take_work(task: &mut Task<'_>) -> BTreeMap<KeyRef, Vec<Revoked>> {
    let registry = &mut task.state().registry;
    // Places that come back mark their keys, so these are taken afterwards.
    let revoked = registry.take_revoked(clock::monotonic_us());
    let dirty = registry.take_dirty();
    let mut work = BTreeMap::new();
    for key_ref in dirty {
        if key_ref.db == ANY_DB {
            let key_refs = key_refs_of(task, &key_ref.name).into_iter();
            work.extend(key_refs.map(|key_ref| (key_ref, Vec::new())));
        } else {
            work.insert(key_ref, Vec::new());
        }
    }
    for revoked in revoked {
        let here: &mut Vec<_> = work.entry(revoked.key_ref.clone()).or_default();
        here.push(revoked);
    }
    work
}

/// The databases that have a lock under a key: 6.2 does not say into which one a lock has come.
fn key_refs_of(task: &mut Task<'_>, key: &Rc<[u8]>) -> Vec<KeyRef> {
    let ctx = task.ctx();
    let name = OwnedString::new(ctx, key);
    let has_lock = |_: &i32| {
        let opened = Key::open(task, name.arg(), Purpose::Write);
        opened.is_ok_and(|opened| opened.lock().is_some())
    };
    let dbs = (0..).take_while(|db| ctx.select_db(*db)).filter(has_lock);
    dbs.map(|db| KeyRef {
        db,
        name: Rc::clone(key),
    })
    .collect()
}

/// Revokes holds of a key, serves it outside a command, and sets its ttl again if it has lost it. Whether the lock has changed.
fn look_at(task: &mut Task<'_>, key_ref: &KeyRef, revoked: Vec<Revoked>) -> bool {
    let ctx = task.ctx();
    ctx.select_db(key_ref.db);
    let name = OwnedString::new(ctx, &key_ref.name);
    if !writes::are_served_here(task.caller(), name.arg()) {
        dismiss_all(ctx, task.state(), key_ref, Error::TryAgain);
        // A lock that has come before its slot may have no ttl.
        let key = Key::open(task, name.arg(), Purpose::Read);
        if key.is_ok_and(|key| key.lock().is_some()) {
            task.state().registry.put_off(key_ref.clone());
        } else {
            task.module().bindings.take_lost(key_ref);
        }
        return false;
    }
    if let Ok(mut key) = Key::open(task, name.arg(), Purpose::Write) {
        // The clock is read after the server has looked at it, so that no grant is dated before the expiry that made room for it.
        let now = clock::now();
        for revoked in revoked {
            revoke(&mut key, revoked, now);
        }
        if key.module().bindings.has_lost() {
            linger::bring_forward(&mut key, now);
        }
        let now = serve_changed(&mut key, key_ref, now);
        key.repair_ttl(now);
        return key.has_changed();
    }
    let state = task.state();
    revoked.into_iter().for_each(|revoked| seek(state, revoked));
    dismiss_all(ctx, state, key_ref, Error::WrongType);
    false
}

/// Ends a hold whose owner was gone before it heard of it. The owner has again what it had before and knows of.
fn revoke(key: &mut Key<'_, '_>, revoked: Revoked, now: Now) {
    let token = revoked.token.as_token();
    let stands = |lock: &&Lock| {
        let hold = lock.hold_of(token, now);
        hold.is_some_and(|(_, hold)| hold.fence == revoked.fence)
    };
    let undo = |lock| revoked.undo(lock, key.deadline(now), now);
    let Some(effect) = key.lock().filter(stands).map(undo) else {
        return seek(key.parts().state, revoked);
    };
    let cause = match effect {
        Effect::Release { .. } => Cause::Revoked,
        _ => Cause::ConversionUndone,
    };
    key.commit(&effect, cause, now);
}

/// Has a hold looked for that is not where it was granted, if its lock has left since.
fn seek(state: &mut State, revoked: Revoked) {
    if revoked.has_left {
        state.registry.deliveries.seek(revoked);
        state.sweep.request();
    }
}
