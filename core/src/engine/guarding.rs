//! The guard at work: it is looked at before anything is decided.

use super::count::Count;
use super::guard::usable::Usable;
use super::guard::{Change, Guard, GuardEvent};
use super::host::{Host, Key, Name, Parts, Server};
use super::machine::Machine;
use super::printable::line_of;
use super::types::Types;
use crate::lock::{Deadline, Now};

/// Which holds of a key may be used now. The key is open, because opening it may run something that
/// begins the guard.
#[inline]
pub(super) fn usable<K: Key>(key: &mut K) -> Usable {
    let (server, name) = (key.server(), key.name());
    let guard = &key.parts().machine.guard;
    guard.usable(|| name.bytes(), || server.boot_us())
}

/// Looks at the guard, if there is one, before anything is decided.
/// A wall clock that was stepped matters only as far as `now` says so, by which something is to be
/// granted or renewed.
#[inline]
pub(super) fn look_if_on<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    now: impl FnOnce() -> Now,
) {
    if machine.guard.is_on() {
        look_if_needed(server, machine, now());
    }
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
        opened(machine);
        if machine.guard.slots_closed() == 0 {
            server.log(c"guard: it has ended in all slots, locks are granted");
        }
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
            opened(machine);
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
        look_at_slots(host);
        beat(server, host.machine());
        look_if_on(server, host.machine(), || server.now());
    }
}

fn beat<S: Server>(server: S, machine: &mut Machine<S::Types>) {
    let guard = &mut machine.guard;
    if !server.is_primary() || !guard.has_beats() {
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

/// Looks at the slots of this node, if the guard is for them. For the timer.
fn look_at_slots<H: Host>(host: &mut H) {
    let server = host.server();
    if !server.is_primary() || !host.machine().guard.has_beats() {
        return;
    }
    let Some(cluster) = host.cluster() else {
        return; // There are no slots.
    };
    let (boot_us, machine) = (server.boot_us(), host.machine());
    let before = machine.guard.slots_closed();
    if machine.guard.look_at_slots(cluster, boot_us) {
        opened(machine);
    }
    let guard = &machine.guard;
    if before == 0 && guard.slots_closed() > 0 {
        server.count(Count::Guards);
        let ms = guard.all_closed_for(None, boot_us).map_or(0, |(ms, _)| ms);
        let line = format!("guard: no new lock is granted in some slots for {ms} ms (slot)");
        server.log(&line_of(line));
    }
}

/// Something has opened: every key that is waited for is looked at.
fn opened<T: Types>(machine: &mut Machine<T>) {
    machine.registry.db_replaced(None);
    machine.is_due_changed = true;
}

/// Counts a request that is not granted because of the guard, if it is. Another one of several keys
/// may be absent.
#[inline]
pub(super) fn note_refused<K: Key>(key: &mut K, is_one_of_several: bool) -> bool {
    let (server, name) = (key.server(), key.name());
    let Parts { lock, machine, .. } = key.parts();
    let is_absent = lock.is_none() || is_one_of_several;
    let is_closed = machine.guard.is_closed_for(|| name.bytes(), is_absent);
    if is_closed {
        server.count(Count::Guarded);
        machine.guard.refused(name.bytes());
        machine.is_due_changed = true;
    }
    is_closed
}

/// Carries out what a callback has noted.
pub(super) fn note<S: Server>(server: S, machine: &mut Machine<S::Types>, event: GuardEvent) {
    let boot_us = server.boot_us();
    let guard = &mut machine.guard;
    match event {
        GuardEvent::Began(reason, at_us, settings) => {
            guard.set(settings, boot_us);
            guard.begin(reason, at_us);
            guard.beat_now();
        }
        GuardEvent::SettingsChanged => {
            let has_closed_slots = guard.slots_closed() > 0;
            let may_have_longer = guard.change(server.guard(), boot_us);
            guard.beat_now();
            if has_closed_slots && guard.slots_closed() == 0 {
                opened(machine);
            }
            if may_have_longer {
                machine.sweep.request(server.monotonic_us());
            }
        }
        GuardEvent::Linked => guard.linked(),
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
