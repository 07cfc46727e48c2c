//! Sections of the server's INFO.

use std::ffi::{CStr, CString};
use std::ptr::NonNull;

use redis_module::raw;

use super::{call, Context};

/// A section of INFO. It is freed when it is dropped.
pub(crate) struct ServerInfo<'c> {
    ctx: Context<'c>,
    data: NonNull<raw::RedisModuleServerInfoData>,
}

impl<'c> ServerInfo<'c> {
    /// A section as it is now.
    pub(crate) fn of(ctx: Context<'c>, section: &CStr) -> Option<Self> {
        // SAFETY: the context is alive; the server copies the name of the section.
        let data = unsafe { call!(RedisModule_GetServerInfo(ctx.as_ptr(), section.as_ptr())) };
        NonNull::new(data).map(|data| Self { ctx, data })
    }

    /// A field of a section as it is now.
    pub(crate) fn field_of(ctx: Context<'c>, section: &CStr, name: &CStr) -> Option<CString> {
        CString::new(Self::of(ctx, section)?.field(name)?).ok()
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &CStr) -> Option<&[u8]> {
        // SAFETY: the data are alive as long as `self`. The value is a part of them, a string that
        // ends with NUL.
        unsafe {
            let value = call!(RedisModule_ServerInfoGetFieldC(
                self.data.as_ptr(),
                name.as_ptr()
            ));
            (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
        }
    }
}

impl Drop for ServerInfo<'_> {
    fn drop(&mut self) {
        // SAFETY: the context is alive, and nothing else frees the data.
        unsafe {
            call!(RedisModule_FreeServerInfo(
                self.ctx.as_ptr(),
                self.data.as_ptr()
            ))
        };
    }
}
