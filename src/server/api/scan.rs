//! Scans of the keyspace, for the sweep ([`redis_lock_core::engine::sweep`]).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use redis_module::raw;

use super::lock_type;
use super::{call, Arg, Context};
use redis_lock_core::engine::sweep::Findings;

/// A scan cursor of the server.
pub(crate) struct Cursor(NonNull<raw::RedisModuleScanCursor>);

impl Cursor {
    pub(in crate::server) fn new() -> Option<Self> {
        // SAFETY: the function takes no arguments.
        let cursor = unsafe { call!(RedisModule_ScanCursorCreate()) };
        NonNull::new(cursor).map(Self)
    }

    /// Looks at the keys of the next bucket. False if it was the last one.
    pub(in crate::server) fn scan(&mut self, ctx: Context<'_>, findings: &mut Findings) -> bool {
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
    findings.look_at(lock, rest_ms != raw::REDISMODULE_NO_EXPIRE.into(), name);
}
