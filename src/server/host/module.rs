//! Everything that the module remembers: one structure, reached from one place.
//!
//! The [`Machine`](redis_lock_core::engine::Machine) belongs to commands and the timer. They borrow
//! it through their [`Task`], one at a time. The other parts are for callbacks, too, which may run
//! in the middle of a command. Each of these is borrowed only within its own methods, which call
//! nothing that calls back.

use std::cell::{Cell, RefCell, RefMut};
use std::num::NonZeroU64;

use redis_module::raw;

use crate::server::api::clock;
use crate::server::api::{Argv, Caller, Context};
use crate::server::clients::blocked_client::{Callbacks, Machine, Note, Shared, SpareOutcome};
use crate::server::clients::connections::Connections;
use crate::server::clients::timer::Timer;
use crate::server::cluster::slot_migration::Migrations;
use crate::server::observe::forced::Forced;
use crate::server::observe::notify::{self, Notices};
use crate::server::observe::stats::recent::Recent;
use crate::server::observe::stats::removals::Removals;
use crate::server::replication::replicas::Links;
use crate::server::settings::limits;
use redis_lock_core::command::guard::Beat;
use redis_lock_core::command::{Args, Command, Error, Reply};
use redis_lock_core::engine::guard::{GuardEvent, Reason, Scope, AFTER_START_MS, CLOCKS_APART_MS};
use redis_lock_core::engine::several;
use redis_lock_core::lock::Deadline;
use redis_lock_core::wait::Counts;

/// For how long the events are sent that one step has noted, and how many of them between two looks
/// at the clock.
const NOTICES_US: u64 = 1_000;
const NOTICES: u32 = 64;

/// Everything that the module remembers.
#[derive(Default)]
pub(in crate::server) struct Module {
    machine: RefCell<Machine>,
    pub(in crate::server) shared: Shared,
    pub(in crate::server) timer: Timer,
    pub(in crate::server) notices: Notices,
    pub(in crate::server) migrations: Migrations,
    pub(in crate::server) removals: Removals,
    pub(in crate::server) recent: Recent,
    pub(in crate::server) forced: Forced,
    pub(in crate::server) connections: Connections,
    pub(in crate::server) links: Links,
    /// What the server calls for blocked clients, from the load on.
    pub(in crate::server) blocked: Cell<Option<Callbacks>>,
    /// The room of the last outcome of a wait.
    pub(in crate::server) spare_outcome: SpareOutcome,
    /// The bytes of the effect that is replicated, kept so that none allocates.
    pub(in crate::server) record: Cell<Vec<u8>>,
}

impl Module {
    /// The module of the calling thread, which is the main thread. Others only free values, and do
    /// not come here.
    pub(in crate::server) fn get() -> &'static Self {
        thread_local! {
            static MODULE: &'static Module = Box::leak(Box::default());
        }
        MODULE.with(|module| *module)
    }

    /// Prepares for what matters only to a node of a cluster, once at load.
    pub(in crate::server) fn prepare_for_cluster(&self) {
        self.machine.borrow_mut().registry.slots_mut().keep();
    }

    /// Leaves a note, which is read in this turn of the server's event loop.
    pub(in crate::server) fn leave(&self, note: Note) {
        self.shared.inbox.leave(note);
        self.timer.arm_at_once();
    }

    /// Whether a command or the timer of the module is at work. Then no client removes a key.
    pub(in crate::server) fn is_at_work(&self) -> bool {
        self.machine.try_borrow_mut().is_err()
    }

    /// Whether the loss of a connection matters to LINGER. In the middle of a change it may.
    pub(in crate::server) fn ends_something(&self, client: NonZeroU64) -> bool {
        let is_awaited = |machine: &Machine| machine.registry.has_lingering(client);
        let machine = self.machine.try_borrow();
        self.shared.bindings.look(|all| all.has_client(client))
            || machine.map_or(true, |machine| is_awaited(&machine))
    }

    /// A lease has come from elsewhere. It may be longer than those of the guard, by more than the
    /// clocks of two servers differ.
    pub(in crate::server) fn lease_came(&self, deadline: Deadline) {
        let settings = limits::guard();
        if settings.scope == Scope::Off {
            return;
        }
        let left_ms = deadline.ms().saturating_sub(clock::now().ms());
        if left_ms > settings.max_ttl_ms.saturating_add(CLOCKS_APART_MS) {
            let came = GuardEvent::LongLease(left_ms, clock::boot_us());
            self.shared.inbox.leave(Note::Guard(came));
        }
    }

    /// How long the longest lease may last that there is, and a guard after a promotion, in
    /// milliseconds; `None` where there is no guard.
    pub(in crate::server) fn longest_lease(&self) -> Option<(u64, u64)> {
        let settings = limits::guard();
        let machine = self.machine.try_borrow().ok();
        let longest_ms = match machine {
            Some(machine) => machine.guard.longest_ms(clock::boot_us()),
            None => settings.max_ttl_ms,
        };
        let wait_ms = longest_ms.saturating_add(settings.slack_ms);
        let bounded = |ms: u64| ms.min(Deadline::MAX_MS);
        (settings.scope != Scope::Off).then_some((bounded(longest_ms), bounded(wait_ms)))
    }

    /// The server has loaded what another one, or this one in an earlier life, knew of leases.
    pub(in crate::server) fn leases_were(&self, longest_ms: u64, wait_ms: u64) {
        if limits::guard().scope == Scope::Off {
            return;
        }
        let (boot_us, inbox) = (clock::boot_us(), &self.shared.inbox);
        let beat = Beat {
            left_ms: None,
            longest_ms,
            wait_ms,
            clock_us: 0,
        };
        inbox.leave(Note::Guard(GuardEvent::Heard(beat, boot_us, clock::now())));
        inbox.leave(Note::Guard(GuardEvent::LongLease(longest_ms, boot_us)));
    }

    /// For how many milliseconds no new grant is made yet, and why; `None` where grants are made,
    /// or in the middle of a change.
    pub(in crate::server) fn guard_closed_for(&self) -> Option<(u64, Reason)> {
        let machine = self.machine.try_borrow().ok()?;
        let settings = limits::guard();
        if settings.scope != Scope::Off && !machine.guard.is_on() {
            // It begins with a note that is not read yet.
            let left_ms = settings.max_ttl_ms.saturating_add(AFTER_START_MS);
            return Some((left_ms, Reason::Restart));
        }
        machine.guard.all_closed_for(None, clock::boot_us())
    }

    /// How many servers of the group are known to follow this one now, it included; 0 where no
    /// majority decides.
    pub(in crate::server) fn guard_members_fresh(&self) -> usize {
        let machine = self.machine.try_borrow();
        machine.map_or(0, |machine| machine.guard.members_fresh(clock::boot_us()))
    }

    /// How many places there are, for how many keys, and how many bytes they take; `None` in the
    /// middle of a change.
    pub(in crate::server) fn place_counts(&self) -> Option<(Counts, usize, usize)> {
        let machine = self.machine.try_borrow().ok()?;
        let registry = &machine.registry;
        Some((
            registry.counts(),
            registry.waited_key_count(),
            registry.bytes(),
        ))
    }
}

/// A command or a timer at work: the right to call the server, and the module's state.
///
/// A call that may come back needs the [`Caller`], which [`Task::caller`] lends only while nothing
/// of the state is borrowed and no key is open (`docs/ARCHITECTURE.md`, "Re-entrancy").
pub(in crate::server) struct Task<'c> {
    caller: Caller<'c>,
    module: &'static Module,
    /// The words of the running command; `None` in the timer.
    argv: Option<Argv<'c>>,
    /// Borrowed when it is needed, and given back before each call that may come back.
    machine: Option<RefMut<'static, Machine>>,
}

impl<'c> Task<'c> {
    /// Begins. `None` where another task has not given the machine back: the server would have
    /// called back from where it must not.
    ///
    /// # Safety
    /// `raw` is the context that the server passed to a command or a timer, `argv` are the words of
    /// that command, and `'c` does not outlive that call.
    pub(in crate::server) unsafe fn begin(
        raw: *mut raw::RedisModuleCtx,
        argv: Option<Argv<'c>>,
    ) -> Option<Self> {
        // SAFETY: the caller's word.
        let ctx = unsafe { Context::new(raw) }?;
        let module = Module::get();
        if module.machine.try_borrow_mut().is_err() {
            return None;
        }
        module.shared.inbox.may_change();
        let mut task = Self {
            caller: Caller::new(ctx),
            module,
            argv,
            machine: None,
        };
        if module.shared.inbox.has_notes() {
            module.shared.drain(ctx, task.machine());
        }
        Some(task)
    }

    /// Runs a command, and replies if it fails.
    ///
    /// # Safety
    /// The arguments are a handler's own, and `'c` does not outlive it.
    pub(in crate::server) unsafe fn run(
        ctx: *mut raw::RedisModuleCtx,
        argv: Argv<'c>,
        run: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) {
        // SAFETY: the caller's word.
        let (task, ctx) = unsafe { (Task::begin(ctx, Some(argv)), Context::new(ctx)) };
        match task {
            Some(mut task) => {
                if let Err(error) = run(&mut task) {
                    task.refuse(error);
                }
                several::finish(&mut task);
            }
            None => ctx
                .into_iter()
                .for_each(|ctx| ctx.reply(Reply::Error(Error::Busy))),
        }
    }

    /// Replies to the running command that it is refused.
    #[cold]
    fn refuse(&self, error: Error) {
        let name = self.argv().word(0).map(|word| word.bytes());
        let is_running = |command: &&Command| {
            let known = command.spec().name.to_bytes();
            name.is_some_and(|name| known.eq_ignore_ascii_case(name))
        };
        match Command::ALL.iter().find(is_running) {
            Some(command) if error == Error::Arity => {
                self.ctx().reply_error(&Error::arity_of(command.spec()));
            }
            _ => self.ctx().reply(Reply::Error(error)),
        }
    }

    /// The context, for calls that do not come back.
    pub(in crate::server) const fn ctx(&self) -> Context<'c> {
        self.caller.context()
    }

    /// The parts that callbacks use, too.
    pub(in crate::server) const fn module(&self) -> &'static Module {
        self.module
    }

    /// The words of the running command. None in the timer, which has no use for them.
    pub(in crate::server) fn argv(&self) -> Argv<'c> {
        self.argv.unwrap_or(Argv::NONE)
    }

    /// A cursor over the arguments after the key.
    pub(in crate::server) fn args(&self) -> Args<impl Iterator<Item = &'c [u8]>> {
        Args::new(self.argv().after_key())
    }

    /// The machine.
    pub(in crate::server) fn machine(&mut self) -> &mut Machine {
        let module = self.module;
        // All tasks that began within a call have ended with it, so it can be borrowed again.
        self.machine
            .get_or_insert_with(|| module.machine.borrow_mut())
    }

    /// The right to make calls that may come back into this module.
    pub(in crate::server) fn caller(&mut self) -> &mut Caller<'c> {
        if let Some(machine) = self.machine.take() {
            self.module.shared.note_names_matter(&machine);
        }
        &mut self.caller
    }

    /// Sends the events that were noted. The timer goes on with the rest of many: a script may
    /// delete a million locks.
    #[cold]
    fn send_notices(&mut self) {
        let ctx = self.ctx();
        let db = ctx.selected_db();
        let until_us = clock::monotonic_us().saturating_add(NOTICES_US);
        let mut sent = 0_u32;
        while let Some(notice) = self.module.notices.next() {
            ctx.select_db(notice.db);
            let key = crate::server::api::OwnedString::new(ctx, &notice.key);
            self.caller()
                .notify_keyspace(notify::name(notice.event), key.arg());
            sent = sent.wrapping_add(1);
            if sent % NOTICES == 0 && clock::monotonic_us() >= until_us {
                self.module.timer.arm_at_once();
                break;
            }
        }
        // The context may be a client's.
        ctx.select_db(db);
    }

    /// Sets the timer to what is due next.
    #[cold]
    fn arm(&mut self) {
        let machine = self.machine();
        machine.is_due_changed = false;
        let due = machine.due();
        self.module.timer.arm(due);
    }
}

impl Drop for Task<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.module.notices.is_pending() {
            self.send_notices();
        }
        let module = self.module;
        let machine = self.machine();
        module.shared.note_names_matter(machine);
        if machine.is_due_changed {
            self.arm();
        }
    }
}
