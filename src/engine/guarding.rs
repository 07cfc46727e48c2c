//! The guard at work: it is looked at before anything is decided.

use super::count::Count;
use super::guard::usable::Usable;
use super::guard::{Change, Guard, GuardEvent};
use super::host::{Host, Key, Name, Server};
use super::machine::Machine;
use super::printable::line_of;
use super::slots;
use crate::lock::{Deadline, Now};

/// Which holds may be used now.
#[inline]
pub(super) fn usable<H: Host>(host: &mut H) -> Usable {
    let server = host.server();
    host.machine().guard.usable(|| server.boot_us())
}

/// Looks at the guard, if there is one, before anything is decided.
#[inline]
pub(super) fn look_if_on<H: Host>(host: &mut H) {
    if host.machine().guard.is_on() {
        let server = host.server();
        look_if_needed(server, host.machine(), server.now());
    }
}

/// The same before a command grants something by its own time. A wall clock that was stepped
/// matters only as far as that time says so.
#[inline]
pub(super) fn look_if_on_at<K: Key>(key: &mut K, now: impl FnOnce() -> Now) {
    let server = key.server();
    let machine = key.parts().machine;
    if machine.guard.is_on() {
        look_if_needed(server, machine, now());
    }
}

/// Which holds may be renewed now.
#[inline]
pub(super) fn renewable<H: Host>(host: &mut H) -> Usable {
    if !host.machine().guard.is_on() {
        return Usable::All;
    }
    let server = host.server();
    look_if_needed(server, host.machine(), server.command_time());
    usable(host)
}

#[inline(never)] // Most servers have no guard.
fn look_if_needed<S: Server>(server: S, machine: &mut Machine<S::Types>, now: Now) {
    if !machine.guard.is_quiet(now, server.boot_us()) {
        look(server, machine, now);
    }
}

/// How long the look at both clocks may take, in microseconds, and how often it is tried.
const AT_ONCE_US: u64 = 50;
const LOOKS: u32 = 4;

/// The wall clock, and the other one at that instant. A server that must wait for the processor
/// between both would see a step of the wall clock at its next look.
fn clocks(wall: impl Fn() -> Now, boot_us: impl Fn() -> u64) -> (Now, u64) {
    let look = || {
        let before_us = boot_us();
        let (now, after_us) = (wall(), boot_us());
        (after_us.saturating_sub(before_us), now, after_us)
    };
    let mut closest = look();
    for _ in 1..LOOKS {
        if closest.0 <= AT_ONCE_US {
            break;
        }
        closest = look().min(closest);
    }
    (closest.1, closest.2)
}

#[cold]
fn look<S: Server>(server: S, machine: &mut Machine<S::Types>, now: Now) {
    let (wall, boot_us) = clocks(|| server.now(), || server.boot_us());
    let now = now.max(wall);
    if machine.guard.open_slots(boot_us) {
        slots::opened(server, machine);
    }
    if server.is_primary() && !server.is_loading() {
        machine.guard.note_look(boot_us);
    }
    let due_us = machine.guard.due_us();
    let change = machine.guard.look(now, boot_us, server.monotonic_us());
    machine.is_due_changed |= machine.guard.due_us() != due_us;
    let Some(change) = change else {
        return;
    };
    machine.is_due_changed = true;
    server.guard_changed(machine.guard.reason_to_remember());
    let line = match change {
        Change::Began(reason) | Change::GoesOn(reason) => {
            if let Change::Began(_) = change {
                server.count(Count::Guards);
            }
            let why = reason.name().to_string_lossy();
            match machine.guard.closed_for(boot_us).map_or(0, |(ms, _)| ms) {
                0 => format!("guard: no new lock is granted ({why})"),
                ms => format!("guard: no new lock is granted for {ms} ms ({why})"),
            }
        }
        Change::Ended => {
            // Every key that is waited for is looked at.
            machine.registry.db_replaced(None);
            "guard: it has ended, locks are granted".to_string()
        }
    };
    server.log(&line_of(line));
    machine.guard.beat_now();
}

/// Tells the replicas of the guard and asks what they have received, if that is due. For the timer.
pub(super) fn beat_if_due<H: Host>(host: &mut H) {
    let server = host.server();
    let is_due = |due_us: u64| due_us <= server.monotonic_us();
    if !host.machine().guard.beat_due_us.is_some_and(is_due) {
        return;
    }
    if host.machine().guard.is_asking {
        ask(server, host.machine());
    } else {
        slots::look(host);
        beat(server, host.machine());
        look_if_on(host);
    }
}

fn beat<S: Server>(server: S, machine: &mut Machine<S::Types>) {
    let guard = &mut machine.guard;
    if !server.is_primary() || !guard.has_beats() {
        if guard.slots_closed() > 0 && !guard.is_closed() {
            server.guard_changed(None);
        }
        return guard.stand_down();
    }
    let (boot_us, replicas) = (server.boot_us(), server.replicas());
    guard.replicas_are(&replicas, boot_us);
    guard.beat_later(boot_us, server.monotonic_us());
    if !replicas.all.is_empty() && !server.must_not_write() {
        guard.note_sent(replicas.offset, boot_us);
        server.beat(guard.beat(boot_us, server.now()));
        guard.is_asking = guard.asks_replicas();
        if guard.is_asking {
            guard.beat_now();
        }
    }
}

/// Asks the replicas what they have received, in the turn after a beat. Two commands of one turn
/// would be a transaction, whose frame goes into the append-only file.
fn ask<S: Server>(server: S, machine: &mut Machine<S::Types>) {
    machine.guard.is_asking = false;
    machine
        .guard
        .beat_later(server.boot_us(), server.monotonic_us());
    if server.is_primary() && !server.must_not_write() {
        server.ask_replicas();
    }
}

/// Counts a request that is not granted because of the guard, if it is.
#[inline]
pub(super) fn note_refused<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    name: impl Name,
) -> bool {
    let is_closed = machine.guard.is_closed_for(|| name.bytes());
    if is_closed {
        server.count(Count::Guarded);
        machine.guard.refused(name.bytes());
        machine.is_due_changed = true;
    }
    is_closed
}

/// Whether a key is absent that may be at another node of the cluster, though the server does not
/// say so: the move of its slot may have been given up.
pub(super) fn may_be_elsewhere<K: Key>(key: &mut K) -> bool {
    let name = key.name();
    if key.lock().is_some() {
        return false;
    }
    let machine = key.parts().machine;
    let may_be = machine.guard.may_be_elsewhere(name.bytes());
    machine.is_due_changed |= may_be;
    may_be
}

/// Carries out what a callback has noted.
pub(super) fn note<S: Server>(server: S, machine: &mut Machine<S::Types>, event: GuardEvent) {
    let boot_us = server.boot_us();
    let guard = &mut machine.guard;
    match event {
        GuardEvent::Began(reason, at_us, settings) => {
            guard.set(settings, boot_us);
            guard.begin(reason, at_us);
            guard.forgets_connections();
            guard.beat_now();
        }
        GuardEvent::LacksNothing => guard.lacks_nothing(),
        GuardEvent::SettingsChanged => {
            let has_closed_slots = guard.slots_closed() > 0;
            let may_have_longer = guard.change(server.guard(), boot_us);
            guard.beat_now();
            if has_closed_slots && guard.slots_closed() == 0 {
                slots::opened(server, machine);
            }
            if may_have_longer {
                machine.sweep.request(server.monotonic_us());
            }
            // The settings say where that is kept.
            if let Some(reason) = machine.guard.reason_to_remember() {
                server.guard_changed(Some(reason));
            }
        }
        GuardEvent::Linked => guard.linked(boot_us),
        GuardEvent::Heard(beat, at_us, now) => {
            let longest_ms = beat.longest_ms;
            if guard.hear(beat, at_us, now) {
                say_longer(server, longest_ms);
            }
        }
        GuardEvent::LongLease(left_ms, at_us) => {
            if guard.long_lease_came(left_ms, at_us) {
                say_longer(server, left_ms);
            }
        }
        GuardEvent::Replicas(replicas, at_us) => {
            guard.replicas_are(&replicas, at_us);
            guard.beat_now();
        }
        GuardEvent::Asked(question) => guard.is_asked(question),
        GuardEvent::Answered(answer) => guard.is_answered(&answer, boot_us),
        GuardEvent::OldPrimaryIsBack(name, at_us) => guard.old_primary_is_back(&name, at_us),
    }
    machine.is_due_changed = true;
    if machine.guard.is_on() || machine.guard.is_closed() {
        look(server, machine, server.now());
    }
}

/// Notes a lease of this server. It may be from before the setting that it is too long for.
#[inline]
pub(super) fn note_lease<S: Server>(server: S, guard: &mut Guard, end: Deadline, now: Now) {
    if guard.is_on() {
        note_long_lease(server, guard, end.ms().saturating_sub(now.ms()));
    }
}

#[cold]
fn note_long_lease<S: Server>(server: S, guard: &mut Guard, left_ms: u64) {
    if guard.leases_may_be(left_ms, server.boot_us()) {
        say_longer(server, left_ms);
    }
}

fn say_longer<S: Server>(server: S, ms: u64) {
    let line = format!("guard: a lease may last {ms} ms yet, lock.max-ttl is less");
    server.log(&line_of(line));
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How far the wall clock seems to be ahead where one of the looks comes so late. The clocks go
    /// alike.
    fn seems_ahead_us(late_at: impl Fn(u32) -> bool) -> i64 {
        let (at_us, looks) = (Cell::new(1_000_000_u64), Cell::new(0));
        let look = || {
            looks.set(looks.get() + 1);
            at_us.set(at_us.get() + if late_at(looks.get()) { 5_000 } else { 1 });
            at_us.get()
        };
        let (now, boot_us) = clocks(|| Now::from_micros(look()), look);
        i64::try_from(now.us()).unwrap() - i64::try_from(boot_us).unwrap()
    }

    #[test]
    fn a_delay_between_the_looks_at_two_clocks_is_no_step() {
        for late in 0..=20 {
            let ahead_us = seems_ahead_us(|look| look == late);
            assert_eq!(ahead_us, -1, "look {late}");
        }
        assert_eq!(seems_ahead_us(|look| look <= 7), -1);
        // Where all are late, the last resort is one of them.
        assert_eq!(seems_ahead_us(|_| true), -5_000);
    }
}
