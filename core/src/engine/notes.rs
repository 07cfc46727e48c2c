//! What is done about the notes of callbacks ([`super::inbox`]).

use super::guarding;
use super::host::Server;
use super::inbox::Note;
use super::machine::{Machine, Removed, Shared};
use super::types::Types;
use crate::planted::planted;
use crate::wait::Delivery;

impl<T: Types> Shared<T> {
    /// Carries out what callbacks have noted. Every command and the timer does so first, and
    /// before each grant.
    #[inline]
    pub fn drain<S: Server<Types = T>>(&self, server: S, machine: &mut Machine<T>) {
        if self.inbox.has_notes() {
            self.drain_notes(server, machine);
        }
    }

    #[cold]
    fn drain_notes<S: Server<Types = T>>(&self, server: S, machine: &mut Machine<T>) {
        machine.is_due_changed = true;
        let mut notes = self.inbox.take();
        for note in notes.drain(..) {
            self.carry_out(server, note, machine);
        }
        self.inbox.give_back(notes);
    }

    fn carry_out<S: Server<Types = T>>(
        &self,
        server: S,
        note: Note<T::Client>,
        machine: &mut Machine<T>,
    ) {
        let registry = &mut machine.registry;
        match note {
            Note::Left { db, name } => {
                registry.mark_replaced(db, &name);
            }
            Note::ManyLeft => registry.db_replaced(None),
            Note::Restored { db, name } => registry.mark_anyway(db, &name),
            Note::Emptied { db } => registry.db_emptied(db),
            Note::Swapped(one, other) => {
                registry.swap_dbs(one, other);
                machine.contended.swap_dbs(one, other);
                machine.sweep.start_over();
            }
            // A client that is not in the registry was granted. Its outcome comes to the callback
            // that frees it.
            Note::Gone(client) => {
                if let Some(removed) = registry.remove_listener(client, server.leaving()) {
                    server.release(client);
                    machine.left(&removed, server.monotonic_us());
                }
            }
            Note::Disconnected(client) => {
                let now = server.now();
                self.bindings.change(|all| all.lose(client, now));
                let now_us = server.monotonic_us();
                for removed in registry.remove_lingering(client, server.leaving()) {
                    machine.left(&removed, now_us);
                }
            }
            Note::SweepWanted => machine.sweep.request(server.monotonic_us()),
            Note::SlotsChanged => machine.slots_checked_us = None,
            Note::Guard(event) => guarding::note(server, machine, event),
            Note::Demoted => machine.was_demoted = true,
        }
    }
}

/// Grants that the server has done with.
impl<T: Types> Shared<T> {
    /// A client was told of its grant.
    pub fn delivered(&self, delivery: &Delivery) {
        self.deliveries.end(delivery.fence);
        self.deliveries.hear(delivery.fence);
        if self.bindings.are_any() {
            self.bindings.change(|all| all.heard(delivery));
        }
    }

    /// A client was gone before it heard of its grant. Whether the timer has anything to do.
    pub fn lost(&self, delivery: &Delivery) -> bool {
        let is_heard = self.deliveries.end(delivery.fence);
        let ends = delivery.is_new && !is_heard && !planted("unheard-grants-stay");
        if ends {
            self.bindings.change(|all| all.unheard(delivery));
        }
        ends
    }
}

impl<T: Types> Machine<T> {
    /// Notes that a request has left its queue: the waiter behind it may be next.
    pub(super) fn left(&mut self, removed: &Removed<T>, now_us: u64) {
        self.wait_ended(removed, now_us);
        self.registry.mark(removed.keys.first());
    }
}
