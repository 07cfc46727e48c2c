//! `min-replicas-to-write`: whether the server has the replicas without which it takes no writes.
//!
//! It refuses the commands itself. What is written outside a command, the hand-off of a lock whose deadline has passed, it does not
//! look at; and that must stop too, or a primary that has lost its replicas to a new one would go on granting.

use std::ffi::{c_int, c_ulonglong, CStr};

use redis_module::raw;

use super::api::{call, Context};

/// Whether the server has fewer replicas in touch than it wants for a write.
pub(super) fn are_missing(ctx: Context<'_>) -> bool {
    good(ctx).is_some_and(|good| good < wanted(ctx))
}

/// How many replicas are in touch; `None` where the server does not count them, as nobody has asked for it.
fn good(ctx: Context<'_>) -> Option<c_ulonglong> {
    let mut status = raw::REDISMODULE_OK as c_int;
    // SAFETY: the context is alive and the strings end with NUL; what the server gives is freed here, with the context it came by.
    let count = unsafe {
        let info = call!(RedisModule_GetServerInfo(
            ctx.as_ptr(),
            c"replication".as_ptr()
        ));
        let field = c"min_slaves_good_slaves".as_ptr();
        let count = call!(RedisModule_ServerInfoGetFieldUnsigned(
            info,
            field,
            &mut status
        ));
        call!(RedisModule_FreeServerInfo(ctx.as_ptr(), info));
        count
    };
    (status == raw::REDISMODULE_OK as c_int).then_some(count)
}

/// How many it wants: at least one, as it counts them.
fn wanted(ctx: Context<'_>) -> c_ulonglong {
    const GET: &CStr = c"GET";
    const SETTING: &CStr = c"min-slaves-to-write";
    // SAFETY: the context is alive; the format takes two strings that end with NUL.
    let reply = unsafe {
        call!(RedisModule_Call(
            ctx.as_ptr(),
            c"CONFIG".as_ptr(),
            c"cc".as_ptr(),
            GET.as_ptr(),
            SETTING.as_ptr()
        ))
    };
    if reply.is_null() {
        return 1;
    }
    let mut len = 0;
    // SAFETY: the reply is ours until it is freed: its name and its value, whose text has `len` bytes.
    let wanted = unsafe {
        let value = call!(RedisModule_CallReplyArrayElement(reply, 1));
        let text = if value.is_null() {
            std::ptr::null()
        } else {
            call!(RedisModule_CallReplyStringPtr(value, &mut len))
        };
        (!text.is_null())
            .then(|| std::slice::from_raw_parts(text.cast::<u8>(), len))
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
    };
    // SAFETY: as above.
    unsafe { call!(RedisModule_FreeCallReply(reply)) };
    wanted.unwrap_or(1)
}
