//! The guard of slots at work: this node looks at them, asks others and answers them.

use std::collections::BTreeSet;

use super::count::Count;
use super::host::{Host, Server};
use super::machine::Machine;
use super::printable::line_of;

/// How many slots are said to have left in one answer. The server is asked about each.
const MOST_WHOLE: usize = 2_000;

/// Looks at the slots of this node, if the guard is for them. For the timer.
pub(super) fn look<H: Host>(host: &mut H) {
    let server = host.server();
    if !server.is_primary() || !host.machine().guard.has_beats() {
        return;
    }
    let Some(cluster) = host.cluster() else {
        return; // There are no slots.
    };
    let (boot_us, guard) = (server.boot_us(), &mut host.machine().guard);
    let before = guard.slots_closed();
    guard.look_at_slots(cluster, boot_us);
    // The answers know of the slots that this look has closed.
    answer(host);
    let guard = &mut host.machine().guard;
    for (node, slots) in guard.asks() {
        server.ask(&node, boot_us, &slots);
    }
    if before == 0 && guard.slots_closed() > 0 {
        server.count(Count::Guards);
        server.guard_changed(guard.reason_to_remember());
        let ms = guard.all_closed_for(None, boot_us).map_or(0, |(ms, _)| ms);
        let line = format!("guard: no new lock is granted in some slots for {ms} ms (slot)");
        server.log(&line_of(line));
    }
}

/// Answers those who have got slots of this node.
fn answer<H: Host>(host: &mut H) {
    let (server, machine) = (host.server(), host.machine());
    let (boot_us, questions) = (server.boot_us(), machine.guard.take_questions());
    let longest_ms = machine.guard.longest_ms(boot_us);
    for question in questions {
        // Only these matter. The node asks again about those that are left out.
        let gone = host.machine().guard.gone_of(&question);
        let whole = gone.into_iter();
        let whole = whole.filter(|slot| host.has_left(*slot, longest_ms));
        let whole: BTreeSet<u16> = whole.take(MOST_WHOLE).collect();
        let (by, at_us) = (question.by, question.at_us);
        let is_whole = |slot| whole.contains(&slot);
        let guard = &host.machine().guard;
        if let Some((left_ms, slots)) = guard.answer(question, is_whole, boot_us) {
            server.answer(&by, at_us, left_ms, &slots);
        }
    }
}

/// Some slots have opened: every key that is waited for is looked at.
pub(super) fn opened<S: Server>(server: S, machine: &mut Machine<S::Types>) {
    machine.registry.db_replaced(None);
    machine.is_due_changed = true;
    if machine.guard.slots_closed() == 0 {
        server.guard_changed(machine.guard.reason_to_remember());
        server.log(c"guard: it has ended in all slots, locks are granted");
    }
}
