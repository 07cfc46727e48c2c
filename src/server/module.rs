//! Everything that the module remembers: one structure, reached from one place.
//!
//! It has two kinds of parts. The [`State`] belongs to commands and the timer. They borrow it through their [`Task`], one at a
//! time. The other parts are for callbacks, too, which may run in the middle of a command. Each of these is borrowed only
//! within its own methods, which call nothing that calls back.

use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroU64;

use redis_module::raw;

use super::api::{Caller, Context};
use super::bindings::Bindings;
use super::blocked_client::{self, Callbacks, Contended, Registry, Removed};
use super::clock;
use super::delivery::Replies;
use super::fences::Fences;
use super::forced::Forced;
use super::inbox::{Inbox, Note};
use super::notify::Notices;
use super::slot_migration::Migrations;
use super::stats::recent::Recent;
use super::stats::removals::Removals;
use super::sweep::Sweep;
use super::timer::Timer;
use crate::wait::{Counts, Due};

/// How often a node of a cluster checks that it still serves the slots of its waiters: nothing tells it when one was taken from
/// it. The server checks its own blocked clients as often.
const CHECK_SLOTS_US: u64 = 1_000_000;

/// Everything that the module remembers.
#[derive(Default)]
pub(super) struct Module {
    state: RefCell<State>,
    pub(super) inbox: Inbox,
    pub(super) timer: Timer,
    pub(super) fences: Fences,
    pub(super) replies: Replies,
    pub(super) notices: Notices,
    pub(super) migrations: Migrations,
    pub(super) removals: Removals,
    pub(super) recent: Recent,
    pub(super) forced: Forced,
    pub(super) bindings: Bindings,
    /// What the server calls for blocked clients, from the load on.
    pub(super) blocked: Cell<Option<Callbacks>>,
}

/// What commands and the timer work on.
#[derive(Default)]
pub(super) struct State {
    /// Everybody who waits.
    pub(super) registry: Registry,
    /// The keys for which they have waited the longest.
    pub(super) contended: Contended,
    pub(super) sweep: Sweep,
    /// When the slots of waiters were checked, on the monotonic clock; `None` when they are to be checked now.
    pub(super) slots_checked_us: Option<u64>,
    /// When the patrol has looked at waited keys, on the monotonic clock.
    pub(super) patrolled_us: u64,
    /// Whether the settings of the server are to be looked at.
    pub(super) has_config_changed: bool,
    /// Whether the server has become a replica, and perhaps a primary again.
    pub(super) was_demoted: bool,
    /// When a cycle of waits was logged last, on the monotonic clock; `None` is never.
    pub(super) cycle_logged_us: Option<u64>,
    /// Whether something may be due earlier than before.
    pub(super) is_due_changed: bool,
    /// The bytes of the effect that is replicated, kept so that none allocates.
    pub(super) record: Vec<u8>,
}

impl Module {
    /// The module of the calling thread, which is the main thread. Others only free values, and do not come here.
    pub(super) fn get() -> &'static Self {
        thread_local! {
            static MODULE: &'static Module = Box::leak(Box::default());
        }
        MODULE.with(|module| *module)
    }

    /// Leaves a note, which is read in this turn of the server's event loop.
    pub(super) fn leave(&self, note: Note) {
        self.inbox.leave(note);
        self.timer.arm_at_once();
    }

    /// Whether a command or the timer of the module is at work. Then no client removes a key.
    pub(super) fn is_at_work(&self) -> bool {
        self.state.try_borrow_mut().is_err()
    }

    /// Whether the loss of a connection matters to LINGER. In the middle of a change it may.
    pub(super) fn ends_something(&self, client: NonZeroU64) -> bool {
        let is_awaited = |state: &State| state.registry.has_lingering(client);
        let state = self.state.try_borrow();
        self.bindings.has_client(client) || state.map_or(true, |state| is_awaited(&state))
    }

    /// How many places there are, and for how many keys; `None` in the middle of a change.
    pub(super) fn place_counts(&self) -> Option<(Counts, usize)> {
        let state = self.state.try_borrow().ok()?;
        let registry = &state.registry;
        Some((registry.counts(), registry.waited_key_count()))
    }

    /// Carries out what callbacks have noted. Every command and the timer does so first, and before each grant.
    #[inline]
    pub(super) fn drain(&self, state: &mut State) {
        if self.inbox.has_notes() {
            self.drain_notes(state);
        }
    }

    #[cold]
    fn drain_notes(&self, state: &mut State) {
        state.is_due_changed = true;
        for note in self.inbox.take() {
            self.carry_out(note, state);
        }
    }

    fn carry_out(&self, note: Note, state: &mut State) {
        let registry = &mut state.registry;
        match note {
            Note::Left { db, name } => {
                registry.deliveries.left(db, &name);
                match db {
                    Some(db) => registry.mark_replaced(db, &name),
                    None => registry.mark_in_all_dbs(&name),
                };
            }
            Note::ManyLeft => {
                registry.deliveries.all_left();
                registry.mark_db(None);
            }
            Note::Restored { db, name } => registry.mark_anyway(db, &name),
            Note::Emptied { db } => {
                registry.mark_db(db);
            }
            Note::Swapped(one, other) => {
                registry.swap_dbs(one, other);
                state.contended.swap_dbs(one, other);
                state.sweep.start_over();
            }
            // A client that is not in the registry was granted. Its outcome comes to the callback that frees it.
            Note::Gone(client) => {
                let now_us = clock::monotonic_us();
                if let Some(removed) = registry.remove_listener(client, now_us) {
                    blocked_client::release(client);
                    wait_ended(&mut state.contended, &removed, now_us);
                    // The waiter behind it may be next.
                    registry.mark(removed.key_ref.db, &removed.key_ref.name);
                }
            }
            Note::Disconnected(client) => {
                self.bindings.lose(client, clock::now());
                let now_us = clock::monotonic_us();
                for removed in registry.remove_lingering(client, now_us) {
                    wait_ended(&mut state.contended, &removed, now_us);
                    registry.mark(removed.key_ref.db, &removed.key_ref.name);
                }
            }
            Note::Delivered(grant) => registry.deliveries.delivered(&grant),
            Note::Lost(grant) => registry.deliveries.lost(grant),
            Note::SweepWanted => state.sweep.request(),
            Note::SlotsChanged => state.slots_checked_us = None,
            Note::Demoted => state.was_demoted = true,
            Note::ConfigChanged => state.has_config_changed = true,
        }
    }
}

impl State {
    /// Sets the timer to what is due next.
    #[cold]
    fn arm(&mut self, timer: &Timer) {
        self.is_due_changed = false;
        timer.arm(self.due());
    }

    /// When there is something to do without a command.
    fn due(&self) -> Due {
        let mut due = self.registry.due();
        let slots_at_us = self.registry.has_put_off().then(|| {
            self.slots_checked_us
                .map_or(0, |us| us.saturating_add(CHECK_SLOTS_US))
        });
        for at_us in self.sweep.due_at_us().into_iter().chain(slots_at_us) {
            due.times_out_at_us = Some(due.times_out_at_us.map_or(at_us, |other| other.min(at_us)));
        }
        due
    }

    /// Whether the slots of waiters are to be checked. Notes that they are.
    pub(super) fn must_check_slots(&mut self, now_us: u64) -> bool {
        let is_fresh = |checked_us: u64| now_us.saturating_sub(checked_us) < CHECK_SLOTS_US;
        if self.slots_checked_us.is_some_and(is_fresh) {
            return false;
        }
        self.slots_checked_us = Some(now_us);
        true
    }
}

/// A command or a timer at work: the right to call the server, and the module's state.
///
/// # Re-entrancy
///
/// Some calls of the server may run another command of this module before they return. That command needs the state. So these
/// calls need the [`Caller`], which [`Task::caller`] lends only while nothing of the state is borrowed and no key is open:
///
/// ```text
/// let registry = &mut task.state().registry;
/// task.caller().call(c"PING", Checks::Few, &[]);
/// registry.due();
/// // error[E0499]: cannot borrow `task` as mutable more than once at a time
/// ```
pub(super) struct Task<'c> {
    caller: Caller<'c>,
    module: &'static Module,
    /// Borrowed when it is needed, and given back before each call that may come back.
    state: Option<RefMut<'static, State>>,
}

impl<'c> Task<'c> {
    /// Begins. `None` where another task has not given the state back: the server would have called back from where it must not.
    ///
    /// # Safety
    /// `raw` is the context that the server passed to a command or a timer, and `'c` does not outlive that call.
    pub(super) unsafe fn begin(raw: *mut raw::RedisModuleCtx) -> Option<Self> {
        // SAFETY: the caller's word.
        let ctx = unsafe { Context::new(raw) }?;
        let module = Module::get();
        if module.state.try_borrow_mut().is_err() {
            return None;
        }
        let mut task = Self {
            caller: Caller::new(ctx),
            module,
            state: None,
        };
        if module.inbox.has_notes() {
            module.drain_notes(task.state());
        }
        Some(task)
    }

    /// The context, for calls that do not come back.
    pub(super) const fn ctx(&self) -> Context<'c> {
        self.caller.context()
    }

    /// The parts that callbacks use, too.
    pub(super) const fn module(&self) -> &'static Module {
        self.module
    }

    /// The state.
    pub(super) fn state(&mut self) -> &mut State {
        let module = self.module;
        // All tasks that began within a call have ended with it, so it can be borrowed again.
        self.state.get_or_insert_with(|| module.state.borrow_mut())
    }

    /// The right to make calls that may come back into this module.
    pub(super) fn caller(&mut self) -> &mut Caller<'c> {
        if let Some(state) = self.state.take() {
            note_names_matter(self.module, &state);
        }
        &mut self.caller
    }

    /// Sends the events that were noted.
    #[cold]
    fn send_notices(&mut self) {
        let ctx = self.ctx();
        let db = ctx.selected_db();
        for notice in self.module.notices.take() {
            ctx.select_db(notice.db);
            let key = super::api::OwnedString::new(ctx, &notice.key);
            let name = notice.event.name();
            self.caller().notify_keyspace(name, key.arg());
        }
        // The context may be a client's.
        ctx.select_db(db);
    }
}

impl Drop for Task<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.module.notices.is_pending() {
            self.send_notices();
        }
        let module = self.module;
        let state = self.state();
        note_names_matter(module, state);
        if state.is_due_changed {
            state.arm(&module.timer);
        }
    }
}

/// Notes for which keys a request has waited that was granted, has timed out, or has lost its client.
pub(super) fn wait_ended(contended: &mut Contended, removed: &Removed, now_us: u64) {
    if removed.listener.is_none() {
        return; // Nobody has waited.
    }
    let waited_us = now_us.saturating_sub(removed.since_us);
    match &removed.several {
        None => contended.add(&removed.key_ref, waited_us),
        Some(all) => all
            .iter()
            .for_each(|one| contended.add(&one.key_ref, waited_us)),
    }
}

#[inline]
fn note_names_matter(module: &Module, state: &State) {
    let registry = &state.registry;
    module
        .inbox
        .set_names_matter(!registry.is_empty() || registry.deliveries.is_waiting());
}
