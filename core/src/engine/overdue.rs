//! What time alone ends: requests whose timeout has passed, and absent places whose grace is over.
//!
//! They end before anything else is decided, also where the server has stood still meanwhile. If
//! there are too many for one turn, nothing is handed over until the last of them has ended.

use super::budget::{Budget, COMMAND_US};
use super::count::Count;
use super::ending::{dismiss_left, tell};
use super::guard::BEAT_US;
use super::host::{Host, Server, Work};
use super::machine::Machine;
use crate::wait::Leaving;

/// Ends what is over before a command does its own work, and those who have waited since before a
/// demotion: who comes now waits for this primary.
#[inline]
pub(super) fn end_first<H: Host>(host: &mut H) {
    if let Some(at_us) = host.machine().registry.due().times_out_at_us {
        let server = host.server();
        if at_us <= server.monotonic_us() {
            let mut budget = Budget::begin(server, COMMAND_US);
            end(server, host.machine(), &mut budget);
        }
    }
    let server = host.server();
    if host.machine().was_demoted && server.is_primary() {
        dismiss_left(server, host.machine());
    }
}

/// Ends what is over, as far as there is time.
pub(super) fn end<S: Server>(server: S, machine: &mut Machine<S::Types>, budget: &mut Budget) {
    let leaving = server.leaving();
    machine.has_overdue = false;
    while end_next(server, machine, leaving) {
        if budget.is_over(server, Work::End) {
            machine.has_overdue = machine.registry.is_any_over(leaving.now_us);
            break;
        }
    }
}

/// Ends what is over first. False if nothing is.
fn end_next<S: Server>(server: S, machine: &mut Machine<S::Types>, leaving: Leaving) -> bool {
    let Machine {
        registry, guard, ..
    } = machine;
    if let Some(key_ref) = registry.absent_and_over(leaving.now_us) {
        let guarded_us = match guard.is_closed_for(|| &key_ref.name, true) && server.is_primary() {
            false => 0,
            true => {
                let closed_for = guard.all_closed_for(Some(&key_ref.name), server.boot_us());
                // Where nobody knows when it ends, the next beat may tell.
                let left_us = match closed_for {
                    None | Some((0, _)) => BEAT_US,
                    Some((ms, _)) => ms.saturating_mul(1_000),
                };
                leaving.now_us.saturating_add(left_us)
            }
        };
        let from_us = guarded_us.max(machine.refused_us);
        if registry.stay_from(from_us, leaving.now_us) {
            return true;
        }
    }
    let Some(removed) = registry.take_timed_out(leaving) else {
        return false;
    };
    machine.left(&removed, leaving.now_us);
    match removed.listener {
        Some(_) => server.count(Count::TimedOut),
        None => server.count(Count::PassedOver),
    }
    tell(server, machine, removed, None);
    true
}

/// How old the answer may be whether the server refuses writes, while no grace is over.
const REFUSAL_FRESH_US: u64 = 20_000;

/// Notes that the server keeps clients from writing, while a place depends on their requests. Its
/// grace begins anew when that ends.
pub(super) fn note_refusal<H: Host>(host: &mut H) {
    let server = host.server();
    let (machine, now_us) = (host.machine(), server.monotonic_us());
    if machine.registry.counts().absent == 0 || !server.is_primary() {
        return;
    }
    let is_fresh = now_us.saturating_sub(machine.refusal_asked_us) < REFUSAL_FRESH_US;
    if is_fresh && !machine.registry.is_any_over(now_us) {
        return; // The question is a command of the server.
    }
    machine.refusal_asked_us = now_us;
    if server.must_not_write() || host.refuses_writes() {
        host.machine().refused_us = now_us;
    }
}
