//! The sweep: it goes through the whole keyspace in small steps, and finds locks that nothing else
//! would check.
//!
//! - **Locks without a ttl.** PERSIST removes the ttl, and a file or a primary may contain a lock
//!   without one. Its holds end as usual, but the key would stay for ever. So the sweep runs after
//!   the server has started, loaded a data set or been promoted.
//! - **Holds to revoke** that RENAME or MOVE has moved to another key since they were granted.
//!
//! The sweep only marks their keys. The timer does the rest, as for every marked key. A server
//! without locks does not sweep, and neither does a replica.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;

use redis_module::raw;

use super::api::{call, Arg, Context};
use super::blocked_client::Registry;
use super::stats::held;
use super::{clock, lock_type};
use crate::lock::Fence;
use crate::wait::delivery::find_in;
use crate::wait::{KeyRef, Revoked};

/// How long a step may take, and the pause after it.
const STEP_US: u64 = 500;
const REST_US: u64 = 5_000;
/// The number of buckets between two looks at the clock.
const BUCKETS: usize = 64;
/// The pause before the next try while the server loads.
const LATER_US: u64 = 100_000;

/// The sweep that is running or requested.
#[derive(Default)]
pub(super) struct Sweep {
    run: Option<Run>,
    /// When the next step is due, on the monotonic clock. `None` without a sweep.
    due_us: Option<u64>,
    /// Whether a sweep was requested since the last one began.
    is_requested: bool,
}

/// The progress of a sweep.
struct Run {
    db: c_int,
    cursor: Cursor,
}

/// A scan cursor of the server.
struct Cursor(NonNull<raw::RedisModuleScanCursor>);

/// The holds that a step looks for, and its results.
struct Findings {
    sought: Vec<Revoked>,
    without_ttl: Vec<Rc<[u8]>>,
    found: Vec<(Fence, Rc<[u8]>)>,
}

impl Sweep {
    /// Requests a sweep of the whole keyspace, from the start.
    pub(super) fn request(&mut self) {
        self.is_requested = true;
        self.due_us.get_or_insert_with(clock::monotonic_us);
    }

    /// Requests another sweep after the running one, because keys have moved to where it has
    /// already been.
    pub(super) fn start_over(&mut self) {
        self.is_requested |= self.due_us.is_some();
    }

    /// Cancels the sweep.
    pub(super) fn cancel(&mut self) {
        *self = Self::default();
    }

    /// When the next step is due, on the monotonic clock.
    pub(super) const fn due_at_us(&self) -> Option<u64> {
        self.due_us
    }

    /// Does the next step if it is due, and marks the keys that it finds. Only on a primary.
    pub(super) fn step(&mut self, ctx: Context<'_>, registry: &mut Registry) {
        let now_us = clock::monotonic_us();
        if self.due_us.is_none_or(|due_us| due_us > now_us) {
            return;
        }
        if ctx.is_loading() {
            self.due_us = Some(now_us.saturating_add(LATER_US));
            return;
        }
        if held::now().keys() == 0 {
            return self.end(registry);
        }
        let run = match self.run.take() {
            Some(run) => Some(run),
            None => {
                self.is_requested = false;
                Cursor::new().map(|cursor| Run { db: 0, cursor })
            }
        };
        let Some(mut run) = run else {
            return self.cancel();
        };
        let is_over = run.go_on(ctx, registry, now_us.saturating_add(STEP_US));
        if !is_over {
            self.run = Some(run);
        } else if !self.is_requested {
            return self.end(registry);
        }
        self.due_us = Some(clock::monotonic_us().saturating_add(REST_US));
    }

    fn end(&mut self, registry: &mut Registry) {
        registry.deliveries.give_up();
        self.cancel();
    }
}

impl Run {
    /// Continues until a time. True if all databases have been swept.
    fn go_on(&mut self, ctx: Context<'_>, registry: &mut Registry, until_us: u64) -> bool {
        while ctx.select_db(self.db) {
            let mut findings = Findings {
                sought: registry.deliveries.sought(),
                without_ttl: Vec::new(),
                found: Vec::new(),
            };
            let has_more = (0..BUCKETS).all(|_| self.cursor.scan(ctx, &mut findings));
            self.take(findings, registry);
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

    /// Marks the keys that were found in a database.
    fn take(&self, findings: Findings, registry: &mut Registry) {
        let db = self.db;
        for key in findings.without_ttl {
            registry.mark_anyway(Some(db), &key);
        }
        for (fence, name) in findings.found {
            registry.deliveries.found(fence, &KeyRef { db, name });
        }
    }
}

impl Cursor {
    fn new() -> Option<Self> {
        // SAFETY: the function takes no arguments.
        let cursor = unsafe { call!(RedisModule_ScanCursorCreate()) };
        NonNull::new(cursor).map(Self)
    }

    /// Looks at the keys of the next bucket. False if it was the last one.
    fn scan(&mut self, ctx: Context<'_>, findings: &mut Findings) -> bool {
        let findings = std::ptr::from_mut(findings).cast::<c_void>();
        // SAFETY: the context and the cursor are alive; `on_key` gets the findings, and nothing
        // else uses them meanwhile.
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
        // SAFETY: this value owns the cursor, and destroys it only here.
        unsafe { call!(RedisModule_ScanCursorDestroy(self.0.as_ptr())) };
    }
}

/// Looks at a key of the database. It may be of any type.
unsafe extern "C" fn on_key(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    findings: *mut c_void,
) {
    if key.is_null() {
        return;
    }
    // SAFETY: this is what `scan` passed, and nothing else borrows it.
    let Some(findings) = (unsafe { findings.cast::<Findings>().as_mut() }) else {
        return;
    };
    // SAFETY: the key is open, and the calls accept any key. A value of the module's type is a
    // lock; it is only read, and it is alive during this callback.
    let (lock, rest_ms) = unsafe {
        if !std::ptr::eq(
            call!(RedisModule_ModuleTypeGetType(key)),
            lock_type::handle(),
        ) {
            return;
        }
        let value = call!(RedisModule_ModuleTypeGetValue(key));
        (lock_type::lock_at(value), call!(RedisModule_GetExpire(key)))
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
