//! The module's one timer: it is set to the earliest thing that is due. What happens then is
//! decided elsewhere ([`redis_lock_core::engine::tick`]).

use std::cell::Cell;
use std::ffi::c_void;

use redis_module::raw;

use crate::server::api::clock;
use crate::server::api::Context;
use redis_lock_core::engine::tick::LOOK_AGAIN_US;
use redis_lock_core::planted::planted;
use redis_lock_core::wait::Due;

/// By how much the server's timer must be late to be replaced. One that works is a millisecond or
/// two late.
const OVERDUE_US: u64 = 20_000;

/// How late the timer is when the server must have stood still, because its process or machine was
/// stopped.
const STALLED_US: u64 = 100_000;

/// How long the timer then waits, so that the server first hears what happened meanwhile: that its
/// replicas have left, or that it is a replica.
const LISTEN_US: u64 = 20_000;

/// How often in a row it listens when it is late again: a machine that comes back may stop once
/// more. On a server whose every turn takes long all timers are late, and would be put off for
/// ever.
const MOST_STALLS: u8 = 2;

/// The function that the server calls when the timer fires.
pub(in crate::server) type OnTimer = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// The timer. It may be armed from callbacks, too.
#[derive(Default)]
pub(in crate::server) struct Timer {
    on_timer: Cell<Option<OnTimer>>,
    armed: Cell<Option<Armed>>,
    /// Until when nothing is done after the server has stood still, on the monotonic clock.
    listens_until_us: Cell<u64>,
    /// How often in a row it had stood still by then.
    stalls: Cell<u8>,
}

/// A timer that is set.
#[derive(Clone, Copy)]
struct Armed {
    id: raw::RedisModuleTimerID,
    /// When it fires, on the monotonic clock.
    at_us: u64,
    /// Whether it was set to fire in the current turn of the server's event loop.
    at_once: bool,
    /// The reason for it; empty when it has a reason of its own.
    due: Due,
    /// How often in a row the server has stood still, if it listens until then; otherwise 0.
    stalls: u8,
}

impl Timer {
    /// Names the function to call, once at load.
    pub(in crate::server) fn set_callback(&self, on_timer: OnTimer) {
        self.on_timer.set(Some(on_timer));
    }

    /// Sets the timer, if something is due before it fires.
    pub(in crate::server) fn arm(&self, due: Due) {
        // The usual case: no clock need be read.
        if self.armed.get().is_some_and(|armed| armed.due.covers(&due)) {
            return;
        }
        if let Some(idle_us) = due.idle_us(clock::now(), clock::monotonic_us()) {
            self.arm_for(due, idle_us);
        }
    }

    /// Sets the timer to fire in this turn of the server's event loop.
    pub(in crate::server) fn arm_at_once(&self) {
        self.arm_in(0);
    }

    /// Sets the timer to fire after this time, or earlier.
    pub(in crate::server) fn arm_in(&self, idle_us: u64) {
        self.arm_for(Due::default(), idle_us);
    }

    /// Notes that the timer has fired. False while the server is to listen first: the timer is then
    /// set again.
    pub(in crate::server) fn fires(&self) -> bool {
        // It has fired, and must not be stopped any more.
        let listens = self.listens_for_us(self.armed.take()) > 0;
        if listens {
            self.arm_in(0);
        }
        !listens
    }

    /// Whether the timer is set.
    pub(in crate::server) fn is_armed(&self) -> bool {
        self.armed.get().is_some()
    }

    /// Replaces a timer that is long overdue. The server measures its timers by the wall clock:
    /// when that is set back, they sleep for as long as it was set back by.
    pub(in crate::server) fn replace_overdue(&self) {
        let is_overdue =
            |armed: &Armed| clock::monotonic_us() > armed.at_us.saturating_add(OVERDUE_US);
        let (Some(armed), Some(ctx)) = (self.armed.get().filter(is_overdue), Context::detached())
        else {
            return;
        };
        ctx.stop_timer(armed.id);
        // The whole server may have been late.
        self.listens_for_us(self.armed.take());
        self.arm_in(0);
    }

    fn arm_for(&self, due: Due, idle_us: u64) {
        let (Some(ctx), Some(on_timer)) = (Context::detached(), self.on_timer.get()) else {
            return;
        };
        let listens_us = self.listens_for_us(self.armed.get());
        let stalls = match idle_us < listens_us {
            true => self.stalls.get(),
            false => 0,
        };
        let idle_us = idle_us.max(listens_us);
        // The server counts in milliseconds.
        let sleep_ms = match planted("the-timer-sleeps") {
            true => 60_000,
            false => idle_us.min(LOOK_AGAIN_US).div_ceil(1_000),
        };
        let at_us = clock::monotonic_us().saturating_add(sleep_ms.saturating_mul(1_000));
        let at_once = sleep_ms == 0;
        if let Some(armed) = self.armed.get() {
            // The server may be late by a millisecond or two with a timer that has slept, but not
            // with one that need not.
            if armed.at_once || (!at_once && armed.at_us <= at_us) {
                return; // It fires early enough, and is set again then.
            }
            ctx.stop_timer(armed.id);
        }
        self.armed.set(Some(Armed {
            id: ctx.create_timer(sleep_ms, on_timer),
            at_us,
            at_once,
            due,
            stalls,
        }));
    }

    /// For how much longer the server is to listen and do nothing. The timer notices a server that
    /// has stood still, because it should have fired.
    fn listens_for_us(&self, armed: Option<Armed>) -> u64 {
        let now_us = clock::monotonic_us();
        let is_late = |armed: &Armed| {
            armed.stalls < MOST_STALLS && now_us.saturating_sub(armed.at_us) > STALLED_US
        };
        if let Some(armed) = armed.filter(is_late) {
            self.stalls.set(armed.stalls.saturating_add(1));
            self.listens_until_us.set(now_us.saturating_add(LISTEN_US));
        }
        self.listens_until_us.get().saturating_sub(now_us)
    }
}
