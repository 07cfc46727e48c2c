//! A look through the whole keyspace, a little at a time, for locks that nobody else would look at:
//!
//! - **Locks without a ttl.** PERSIST takes it off, and a file or a primary may bring such a lock in. Its holds end all the same, but
//!   the key would stay for ever. So the keyspace is gone through after the server has started, loaded a data set or been promoted.
//! - **Holds that are to be taken back** and have gone elsewhere by RENAME or MOVE since they were granted.
//!
//! It only finds them. The timer does what is to be done, as with every key that is marked. A server that holds no lock, or is a
//! replica, sweeps nothing.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;

use redis_module::raw;

use super::api::{call, Arg, Context};
use super::stats::held;
use super::waiting;
use super::{clock, data_type};
use crate::lock::Fence;
use crate::wait::delivery::find_in;
use crate::wait::Revoked;

/// How long a step may take, and how long the server is left alone after it.
const STEP_US: u64 = 500;
const REST_US: u64 = 5_000;
/// How many buckets are looked at before the clock is.
const BUCKETS: usize = 64;
/// How soon it is tried again on a server that still loads.
const LATER_US: u64 = 100_000;

thread_local! {
    static SWEEP: RefCell<Option<Sweep>> = const { RefCell::new(None) };
    /// When the next step is due, on the monotonic clock; `None` without a sweep.
    static DUE_US: Cell<Option<u64>> = const { Cell::new(None) };
    /// Whether a sweep was asked for since the last one began.
    static IS_REQUESTED: Cell<bool> = const { Cell::new(false) };
}

/// How far a sweep has come.
struct Sweep {
    db: c_int,
    cursor: Cursor,
}

/// A cursor of the server's.
struct Cursor(NonNull<raw::RedisModuleScanCursor>);

/// What a step looks for, and what it has found.
struct Findings {
    sought: Vec<Revoked>,
    without_ttl: Vec<Rc<[u8]>>,
    found: Vec<(Fence, Rc<[u8]>)>,
}

/// Has the keyspace gone through once more, from its beginning.
pub(super) fn request() {
    IS_REQUESTED.set(true);
    if DUE_US.get().is_none() {
        DUE_US.set(Some(clock::monotonic_us()));
    }
}

/// Has a sweep that is under way followed by another one, as keys have gone where it has been already.
pub(super) fn start_over() {
    if DUE_US.get().is_some() {
        IS_REQUESTED.set(true);
    }
}

/// Gives up what is under way.
pub(super) fn cancel() {
    SWEEP.set(None);
    IS_REQUESTED.set(false);
    DUE_US.set(None);
}

/// When the timer must go off for the next step, in microseconds of the monotonic clock.
pub(super) fn due_at_us() -> Option<u64> {
    DUE_US.get()
}

/// Does the next step if it is due, and marks the keys that it finds. Only on a primary.
pub(super) fn step(ctx: Context<'_>) {
    let now_us = clock::monotonic_us();
    if DUE_US.get().is_none_or(|due_us| due_us > now_us) {
        return;
    }
    if ctx.is_loading() {
        return DUE_US.set(Some(now_us.saturating_add(LATER_US)));
    }
    if held::now().keys() == 0 {
        waiting::give_up_search();
        return cancel();
    }
    let mut sweep = match SWEEP.take() {
        Some(sweep) => sweep,
        None => {
            IS_REQUESTED.set(false);
            let Some(cursor) = Cursor::new() else {
                return cancel();
            };
            Sweep { db: 0, cursor }
        }
    };
    let is_over = sweep.go_on(ctx, now_us.saturating_add(STEP_US));
    if !is_over {
        SWEEP.set(Some(sweep));
    } else if !IS_REQUESTED.get() {
        waiting::give_up_search();
        return cancel();
    }
    DUE_US.set(Some(clock::monotonic_us().saturating_add(REST_US)));
}

impl Sweep {
    /// Goes on until a time. True when all databases were gone through.
    fn go_on(&mut self, ctx: Context<'_>, until_us: u64) -> bool {
        while ctx.select_db(self.db) {
            let mut findings = Findings {
                sought: waiting::sought(),
                without_ttl: Vec::new(),
                found: Vec::new(),
            };
            let has_more = (0..BUCKETS).all(|_| self.cursor.scan(ctx, &mut findings));
            waiting::take_findings(self.db, &findings.without_ttl, &findings.found);
            if !has_more {
                self.db = self.db.saturating_add(1);
                match Cursor::new() {
                    Some(cursor) => self.cursor = cursor,
                    None => return true,
                }
            }
            if clock::monotonic_us() > until_us {
                return false;
            }
        }
        true
    }
}

impl Cursor {
    fn new() -> Option<Self> {
        // SAFETY: the function takes nothing.
        let cursor = unsafe { call!(RedisModule_ScanCursorCreate()) };
        NonNull::new(cursor).map(Self)
    }

    /// Looks at the keys of the next bucket. False when it was the last.
    fn scan(&mut self, ctx: Context<'_>, findings: &mut Findings) -> bool {
        let findings = std::ptr::from_mut(findings).cast::<c_void>();
        // SAFETY: the context and the cursor are alive; `on_key` gets the findings, which nobody else uses meanwhile.
        unsafe {
            call!(RedisModule_Scan(
                ctx.as_ptr(),
                self.0.as_ptr(),
                Some(on_key),
                findings
            )) != 0
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: the cursor is ours, and destroyed only here.
        unsafe { call!(RedisModule_ScanCursorDestroy(self.0.as_ptr())) };
    }
}

/// A key of the database. It may be of any type.
unsafe extern "C" fn on_key(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    findings: *mut c_void,
) {
    if key.is_null() {
        return;
    }
    // SAFETY: what `scan` passed, lent to nobody else.
    let Some(findings) = (unsafe { findings.cast::<Findings>().as_mut() }) else {
        return;
    };
    // SAFETY: the key is open, and both calls take any. A value of our type is a lock, which is only read, and alive in this callback.
    let (lock, rest_ms) = unsafe {
        if !std::ptr::eq(call!(RedisModule_ModuleTypeGetType(key)), data_type::raw()) {
            return;
        }
        let value = call!(RedisModule_ModuleTypeGetValue(key));
        (data_type::lock_at(value), call!(RedisModule_GetExpire(key)))
    };
    // SAFETY: the server's own string, in its callback.
    let name = || Rc::from(unsafe { Arg::new(name) }.bytes());
    let Some(lock) = lock else {
        return;
    };
    if rest_ms == raw::REDISMODULE_NO_EXPIRE.into() {
        findings.without_ttl.push(name());
    }
    for fence in find_in(lock, &findings.sought) {
        findings.found.push((fence, name()));
    }
}
