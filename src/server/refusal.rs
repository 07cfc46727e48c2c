//! What the server refuses to its clients and would let a timer do.

use std::ffi::{c_int, c_longlong, CStr};
use std::io;

use redis_module::raw;

use super::api::{call, Context};

/// From here on a call can be checked as one of a script's: 7.0.0.
const HAS_SCRIPT_MODE: c_int = 0x0007_0000;

/// What a call does not check, a script does. It answers text when it is refused.
const ASK_BY_SCRIPT: &CStr = c"local reply = redis.pcall('SETRANGE', '', 0, '') \
    local error = type(reply) == 'table' and reply.err or '' \
    return (error:find('MISCONF') or error:find('NOREPLICAS')) and error";

/// Whether the server refuses all writes for now: its disk fails (-MISCONF), or too few replicas follow it (-NOREPLICAS).
///
/// It refuses commands only. A hold that a timer gives then would be one that no file and no replica knows of, although the operator
/// has said that there must be none. Asked by a write that never writes anything, whatever is under the key.
pub(super) fn of_writes(ctx: Context<'_>) -> bool {
    // SAFETY: the function takes nothing.
    let version = unsafe { call!(RedisModule_GetServerVersion()) };
    let reply = if version < HAS_SCRIPT_MODE {
        // SAFETY: the context is alive; the format takes a string that ends with NUL and a number.
        unsafe {
            call!(RedisModule_Call(
                ctx.as_ptr(),
                c"EVAL".as_ptr(),
                c"cl".as_ptr(),
                ASK_BY_SCRIPT.as_ptr(),
                0 as c_longlong,
            ))
        }
    } else {
        // SAFETY: the context is alive; the format is script mode, and takes a string, a number and a string.
        unsafe {
            call!(RedisModule_Call(
                ctx.as_ptr(),
                c"SETRANGE".as_ptr(),
                c"Sclc".as_ptr(),
                c"".as_ptr(),
                0 as c_longlong,
                c"".as_ptr(),
            ))
        }
    };
    if reply.is_null() {
        // The server's word for a refusal in script mode is ESPIPE. Others are not about writes: the command may have been renamed.
        return io::Error::last_os_error().kind() == io::ErrorKind::NotSeekable;
    }
    let mut len = 0;
    // SAFETY: the reply is ours, and freed only here.
    unsafe {
        let text = call!(RedisModule_CallReplyStringPtr(reply, &mut len));
        call!(RedisModule_FreeCallReply(reply));
        version < HAS_SCRIPT_MODE && !text.is_null()
    }
}
