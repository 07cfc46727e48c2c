//! The native type `redislock` as the rest of the shell sees it: its handle, and values behind
//! pointers.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use redis_lock_core::lock::Lock;

static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// The type's handle, null before it is registered.
pub(in crate::server) fn handle() -> *mut raw::RedisModuleType {
    TYPE.load(Ordering::Relaxed)
}

/// Keeps the type's handle.
pub(in crate::server) fn set_handle(handle: *mut raw::RedisModuleType) {
    TYPE.store(handle, Ordering::Relaxed);
}

/// Borrows the value that the server hands to a method of the type, or to a callback.
///
/// # Safety
/// `value` is a value of this type, and `'v` does not outlive the call from the server.
pub(in crate::server) unsafe fn lock_at<'v>(value: *const c_void) -> Option<&'v Lock> {
    // SAFETY: every value of this type is a boxed `Lock`, by the caller's word.
    unsafe { value.cast::<Lock>().as_ref() }
}
