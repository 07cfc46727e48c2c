//! The guard at work: it is looked at before anything is decided.

use super::count::Count;
use super::guard::{Change, GuardEvent, Reason};
use super::host::{Host, Server};
use super::machine::Machine;
use super::printable::line_of;
use crate::lock::{Lock, Now, Token};

/// By how much the clocks of two servers may differ, in milliseconds.
const CLOCKS_APART_MS: u64 = 1_000;

/// Which holds may be used: renewed, checked, or the condition of a command.
#[derive(Clone, Copy)]
pub(super) enum Usable {
    All,
    /// Those that have more than a second left.
    ButTheLastSecond,
}

/// Which holds may be used now.
#[inline]
pub(super) fn usable<H: Host>(host: &mut H) -> Usable {
    let server = host.server();
    match host
        .machine()
        .guard
        .leaves_out_last_second(|| server.boot_us())
    {
        true => Usable::ButTheLastSecond,
        false => Usable::All,
    }
}

impl Usable {
    /// A lock whose hold of a token may be used.
    #[inline]
    pub(super) fn of<'l>(
        self,
        lock: Option<&'l Lock>,
        token: Token<'_>,
        now: Now,
    ) -> Option<&'l Lock> {
        match self {
            Self::All => lock,
            Self::ButTheLastSecond => lock.filter(|lock| {
                let soon_ms = now.ms().saturating_add(CLOCKS_APART_MS);
                let own = lock.hold_of(token, now);
                own.is_some_and(|(_, hold)| !hold.deadline.is_over(soon_ms))
            }),
        }
    }
}

/// Looks at the guard, if there is one, before anything is decided.
#[inline]
pub(super) fn look_if_on<H: Host>(host: &mut H) {
    if host.machine().guard.is_on() {
        look(host.server(), host.machine());
    }
}

#[cold]
fn look<S: Server>(server: S, machine: &mut Machine<S::Types>) {
    let (now, boot_us) = (server.now(), server.boot_us());
    let change = machine.guard.look(now, boot_us, server.monotonic_us());
    let Some(change) = change else {
        return;
    };
    machine.is_due_changed = true;
    let line = match change {
        Change::Began(reason) => {
            server.count(Count::Guards);
            let left_ms = machine.guard.closed_for(boot_us).map_or(0, |(ms, _)| ms);
            let why = reason.name().to_string_lossy();
            format!("guard: no new lock is granted for {left_ms} ms ({why})")
        }
        Change::Ended => {
            // Every key that is waited for is looked at.
            machine.registry.db_replaced(None);
            "guard: it has ended, locks are granted".to_string()
        }
    };
    server.log(&line_of(line));
}

/// Carries out what a callback has noted.
pub(super) fn note<S: Server>(server: S, machine: &mut Machine<S::Types>, event: GuardEvent) {
    let boot_us = server.boot_us();
    match event {
        GuardEvent::Began(reason, at_us) => {
            machine.guard.set(server.guard(), boot_us);
            machine.guard.begin(reason, at_us);
        }
        GuardEvent::LacksNothing => machine.guard.lacks_nothing(),
        GuardEvent::SettingsChanged => {
            let was_on = machine.guard.is_on();
            machine.guard.set(server.guard(), boot_us);
            if machine.guard.is_on() && !was_on {
                machine.guard.begin(Reason::Restart, boot_us);
            }
        }
    }
    if machine.guard.is_on() || machine.guard.is_closed() {
        look(server, machine);
    }
}
