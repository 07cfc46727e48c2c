//! What happens without a command: deadlines, timeouts, and keys that others have changed. The
//! timer calls it when something is due.

use super::budget::{Budget, TURN_US};
use super::commit::{drop_many_ended, lacks_ttl, repair_ttl};
use super::ending::{dismiss_all, dismiss_left, dismiss_somebody, end_next};
use super::guarding;
use super::host::{Host, Key, Purpose, Server, Work};
use super::linger;
use super::machine::Machine;
use super::overdue;
use super::serve::{serve_changed, watch};
use super::several;
use crate::command::Error;
use crate::lock::Now;
use crate::wait::{KeyRef, SlotQuestion};

/// How often the keys that are waited for are looked at. By then a wall clock is noticed that was
/// set forward, and an end that PEXPIRE or PERSIST has given to a waited key.
pub const LOOK_AGAIN_US: u64 = 100_000;

/// How many keys of lost connections are marked in one go.
const MOST_LOST: usize = 250;

/// How soon the timer looks again while the server is paused.
const PAUSED_US: u64 = 10_000;

/// How soon the timer looks again while the server refuses writes, which may last for hours.
const REFUSED_US: u64 = 50_000;

/// Does all that is due. What is due after it is known to [`Machine::due`], unless this answers how
/// long the server must be left alone: what is due stays due, and without a rest the timer would
/// fire in every turn of the server's event loop.
pub fn run<H: Host>(host: &mut H) -> Option<u64> {
    let pause_us = do_due(host);
    guarding::beat_if_due(host);
    let machine = host.machine();
    let is_due = machine.registry.has_work()
        || machine.registry.is_passing()
        || machine.sweep.due_us.is_some();
    machine.is_due_changed = true;
    pause_us.filter(|_| is_due)
}

/// Does what can be done now: first whatever only ends or finds something, so that nobody is
/// granted who is to end, then the pass, then what is served. Answers for how long the server must
/// be left alone, if it takes no writes.
fn do_due<H: Host>(host: &mut H) -> Option<u64> {
    host.shared().inbox.forget_left_locks();
    let server = host.server();
    guarding::look_if_on(server, host.machine(), || server.now());
    overdue::note_refusal(host);
    let mut budget = Budget::begin(server, TURN_US);
    overdue::end(server, host.machine(), &mut budget);
    let bindings = &host.shared().bindings;
    for key_ref in bindings.change(|all| all.next_untold(MOST_LOST)) {
        let registry = &mut host.machine().registry;
        registry.mark_anyway(key_ref.db, &key_ref.name);
    }
    let now = server.now();
    let is_primary = server.is_primary();
    if server.is_cluster() && host.machine().must_check_slots(server.monotonic_us()) {
        host.machine().registry.slots_mut().begin();
    }
    while end_or_find(host, is_primary, now) && !budget.is_over(server, Work::End) {}
    if !is_primary {
        stand_down(host);
        return None;
    }
    dismiss_left(server, host.machine());
    // These are looked at with the others.
    host.machine().registry.mark_unserved();
    if server.must_not_write() {
        return Some(PAUSED_US);
    }
    pass(host, &mut budget);
    let Machine {
        sweep,
        registry,
        guard,
        ..
    } = host.machine();
    sweep.step(server, registry, guard);
    if !host.machine().registry.has_work() || host.machine().has_overdue {
        return None;
    }
    if host.refuses_writes() {
        return Some(REFUSED_US);
    }
    serve(host, &mut budget);
    None
}

/// One step of each: a key at which time has made somebody next, a slot that may have gone, and one
/// of many places that end for one reason, or any on a replica. False if there is nothing.
fn end_or_find<H: Host>(host: &mut H, is_primary: bool, now: Now) -> bool {
    let (server, machine) = (host.server(), host.machine());
    let is_woken = machine.registry.mark_woken(now);
    let has_ended = match is_primary {
        true => machine.registry.has_endings() && end_next(server, machine),
        false => dismiss_somebody(server, machine),
    };
    let has_asked = host.machine().registry.slots().is_asking();
    if has_asked {
        ask_about_slot(host);
    }
    is_woken || has_ended || has_asked
}

/// Looks at the keys that are marked.
fn serve<H: Host>(host: &mut H, budget: &mut Budget) {
    let server = host.server();
    host.machine().registry.agenda.marks.begin_turn();
    while let Some(key_ref) = host.machine().registry.agenda.marks.next_in_turn() {
        look_at(host, &key_ref);
        // If there are many to serve, it is marked again, and they take a turn of their own.
        let is_cut = host.machine().registry.agenda.marks.has(&key_ref);
        several::finish_in_timer(host);
        if budget.is_over(server, Work::Serve) || is_cut {
            break;
        }
    }
    several::finish_in_timer(host);
}

/// Leaves all to the new primary.
fn stand_down<H: Host>(host: &mut H) {
    let machine = host.machine();
    // Those who are left go in the next turn, and also if the server is a primary again by then.
    machine.was_demoted = !machine.registry.is_empty();
    machine.registry.mark_unserved();
    machine.registry.agenda.marks.clear();
    machine.registry.clear_endings();
    machine.sweep.cancel();
    host.shared().bindings.change(|all| all.clear());
}

/// Goes on with the pass over all places. Some keys are looked at: nothing tells of PEXPIRE and
/// PERSIST.
fn pass<H: Host>(host: &mut H, budget: &mut Budget) {
    let server = host.server();
    let machine = host.machine();
    let now_us = server.monotonic_us();
    if now_us.saturating_sub(machine.looked_us) >= LOOK_AGAIN_US {
        machine.looked_us = now_us;
        machine.registry.begin_look();
    }
    while host.machine().registry.is_passing() {
        for key_ref in host.machine().registry.pass_on() {
            look_in_passing(host, &key_ref);
        }
        if budget.is_over(server, Work::Pass) {
            break;
        }
    }
}

fn look_in_passing<H: Host>(host: &mut H, key_ref: &KeyRef) {
    let server = host.server();
    server.select_db(key_ref.db);
    let name = host.name(&key_ref.name);
    let now = server.now();
    // Its time may have come since this turn has asked for such keys, and to watch it anew would
    // forget that.
    let is_woken = host.machine().registry.is_woken(key_ref, now);
    let is_watched = match host.open(&name, Purpose::Write) {
        Ok(mut key) if !is_woken && key.lock().is_some() && key.deadline().is_some() => {
            watch(&mut key, key_ref, now);
            true
        }
        _ => false,
    };
    if !is_watched {
        host.machine().registry.mark(key_ref);
    }
}

/// Sends away the waiters of keys that this node does not serve any more, though it may have them
/// still.
fn ask_about_slot<H: Host>(host: &mut H) {
    let server = host.server();
    match host.machine().registry.next_slot_question() {
        Some(SlotQuestion::Slot(slot)) if !host.serves_slot(slot) => {
            host.machine().registry.slots_mut().refuse(slot);
        }
        Some(SlotQuestion::Key(key_ref)) => {
            server.select_db(key_ref.db);
            let name = host.name(&key_ref.name);
            if !host.serves(&name) {
                dismiss_all(server, host.machine(), &key_ref, Error::TryAgain);
            }
        }
        Some(SlotQuestion::Slot(_)) | None => {}
    }
}

/// Ends the holds of a key that are lost, serves it outside a command, and sets its ttl again if it
/// has lost it.
fn look_at<H: Host>(host: &mut H, key_ref: &KeyRef) {
    let server = host.server();
    server.select_db(key_ref.db);
    let name = host.name(&key_ref.name);
    if !host.serves(&name) {
        dismiss_all(server, host.machine(), key_ref, Error::TryAgain);
        let key = host.open(&name, Purpose::Read);
        let lock = key.ok().and_then(|key| lacks_ttl(&key));
        match lock {
            None => drop(host.shared().bindings.change(|all| all.take_lost(key_ref))),
            // A lock that has come before its slot may have no ttl.
            Some(lacks_ttl) if lacks_ttl || host.shared().bindings.has_lost() => {
                host.machine().registry.slots_mut().put_off(key_ref.clone());
            }
            Some(_) => {}
        }
        return;
    }
    if let Ok(mut key) = host.open(&name, Purpose::Write) {
        // The clock is read after the server has looked at it, so that no grant is dated before the
        // expiry that made room for it.
        let now = server.now();
        if key.shared().bindings.has_lost() {
            linger::bring_forward(&mut key, now);
        }
        let now = serve_changed(&mut key, key_ref, now);
        drop_many_ended(&mut key, now);
        repair_ttl(&mut key, now);
        return;
    }
    host.shared().bindings.change(|all| all.take_lost(key_ref));
    dismiss_all(server, host.machine(), key_ref, Error::WrongType);
}
