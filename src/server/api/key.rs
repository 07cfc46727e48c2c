//! Open keys of the server.

use std::ffi::{c_int, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr;

use redis_module::raw;

use super::{call, Arg, Caller};
use redis_lock_core::engine::host::Purpose;

/// A key, open until it is dropped.
pub(crate) struct OpenKey<'c> {
    raw: *mut raw::RedisModuleKey,
    call: PhantomData<&'c raw::RedisModuleKey>,
}

/// What is under a key.
pub(crate) enum Content {
    Absent,
    /// A value of the type that was asked for.
    Value(*mut c_void),
    OtherType,
}

impl<'c> OpenKey<'c> {
    /// Opens a key.
    ///
    /// The server deletes an expired key when it is opened, and notifies other modules. They may
    /// call this module, so this function takes a [`Caller`]. The user keeps the caller borrowed
    /// while the key is open (`lock_key`).
    pub(crate) fn open(caller: &mut Caller<'c>, name: Arg<'_>, purpose: Purpose) -> Self {
        let ctx = caller.context();
        let mode = match purpose {
            Purpose::Read => raw::REDISMODULE_READ,
            Purpose::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: the context and the name are alive.
        let key = unsafe {
            call!(RedisModule_OpenKey(
                ctx.as_ptr(),
                name.as_ptr(),
                mode as c_int
            ))
        };
        Self {
            raw: key.cast(),
            call: PhantomData,
        }
    }

    /// Closes the key. It is absent for this value then.
    pub(crate) fn close(&mut self) {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        if !raw.is_null() {
            // SAFETY: the key is open, and closed only here.
            unsafe { call!(RedisModule_CloseKey(raw)) };
        }
    }

    /// The content of the key: a value of type `ty`, another value, or none.
    pub(crate) fn content(&self, ty: *mut raw::RedisModuleType) -> Content {
        if self.raw.is_null() {
            // A key that is absent, opened for reading.
            return Content::Absent;
        }
        // SAFETY: the key is open; null where the value does not belong to a module.
        let found = unsafe { call!(RedisModule_ModuleTypeGetType(self.raw)) };
        if ptr::eq(found, ty) {
            // SAFETY: the key is open.
            let value = unsafe { call!(RedisModule_ModuleTypeGetValue(self.raw)) };
            return match value.is_null() {
                true => Content::OtherType,
                false => Content::Value(value),
            };
        }
        // SAFETY: the key is open.
        let kind = unsafe { call!(RedisModule_KeyType(self.raw)) };
        match kind == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            true => Content::Absent,
            false => Content::OtherType,
        }
    }

    /// Sets the value of a key that is open for writing. The key owns it from now on, unless this
    /// answers false.
    ///
    /// # Safety
    /// `value` is what the methods of the type `ty` expect.
    pub(crate) unsafe fn set_value(
        &self,
        ty: *mut raw::RedisModuleType,
        value: *mut c_void,
    ) -> bool {
        // SAFETY: the key is open; the caller vouches for the value.
        let status = unsafe { call!(RedisModule_ModuleTypeSetValue(self.raw, ty, value)) };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Deletes a key that is open for writing, and its value.
    pub(crate) fn delete(&self) {
        // SAFETY: the key is open.
        unsafe { call!(RedisModule_DeleteKey(self.raw)) };
    }

    /// When a key that has a value expires, in milliseconds since the epoch. `None` if it does not.
    pub(crate) fn expires_at_ms(&self) -> Option<u64> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: the key is open, and has a value.
        u64::try_from(unsafe { call!(RedisModule_GetAbsExpire(self.raw)) }).ok()
    }

    /// Sets when a key that is open for writing expires, in milliseconds since the epoch.
    pub(crate) fn expire_at_ms(&self, at_ms: u64) {
        let at_ms = c_longlong::try_from(at_ms).unwrap_or(c_longlong::MAX);
        // SAFETY: the key is open.
        unsafe { call!(RedisModule_SetAbsExpire(self.raw, at_ms)) };
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
