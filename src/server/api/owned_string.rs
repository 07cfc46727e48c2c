//! Strings of the server that this module creates.

use std::ffi::c_char;

use redis_module::raw;

use super::{call, Arg, Context};

/// A string of the server that this module owns. It is freed when it is dropped.
pub(crate) struct OwnedString<'c> {
    ctx: Context<'c>,
    raw: *mut raw::RedisModuleString,
}

impl<'c> OwnedString<'c> {
    pub(crate) fn new(ctx: Context<'c>, bytes: &[u8]) -> Self {
        let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
        // SAFETY: the context is alive; the server copies `len` bytes.
        let raw = unsafe { call!(RedisModule_CreateString(ctx.as_ptr(), start, len)) };
        Self { ctx, raw }
    }

    pub(crate) const fn arg(&self) -> Arg<'_> {
        // SAFETY: the string lives as long as this borrow of it.
        unsafe { Arg::new(self.raw) }
    }
}

impl Drop for OwnedString<'_> {
    fn drop(&mut self) {
        // SAFETY: this value owns the string, and frees it only here.
        unsafe { call!(RedisModule_FreeString(self.ctx.as_ptr(), self.raw)) };
    }
}
