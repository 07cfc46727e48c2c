//! Settings: load arguments on every server, and CONFIG GET / SET / REWRITE from 7.0 on.
//!
//! ```text
//! loadmodule libredis_lock.so [max-waiters-per-key N] [max-waiters N]
//! ```

use std::ffi::{c_char, c_int, c_longlong, c_void, CStr, CString};

use redis_module::raw;

use super::api::Context;
use super::waiting::limits::{Limit, ALL, MAX, MIN};

/// What the log says of arguments that cannot be taken.
pub(super) const BAD_ARGUMENTS: &CStr =
    c"bad arguments: expected [max-waiters-per-key N] [max-waiters N] with N from 0 to 1000000";

/// Takes the load arguments. False when they are not pairs of a setting and its value, in its bounds, each at most once.
pub(super) fn read_arguments<'a>(mut args: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut seen: Vec<&str> = Vec::new();
    while let Some(name) = args.next() {
        let known = ALL
            .iter()
            .find(|limit| name.eq_ignore_ascii_case(limit.name.as_bytes()));
        let value = args.next().and_then(|text| std::str::from_utf8(text).ok());
        let (Some(limit), Some(value)) = (known, value.and_then(|text| text.parse().ok())) else {
            return false;
        };
        if seen.contains(&limit.name) || !limit.set(value) {
            return false;
        }
        seen.push(limit.name);
    }
    true
}

/// Offers the settings to CONFIG, on servers that have it for modules. What the load arguments said is the default then, which the
/// configuration file and MODULE LOADEX overrule.
pub(super) fn register(ctx: Context<'_>) -> bool {
    // SAFETY: the statics are not written after the load.
    let (Some(register), Some(load)) = (unsafe {
        (
            raw::RedisModule_RegisterNumericConfig,
            raw::RedisModule_LoadConfigs,
        )
    }) else {
        return true;
    };
    let registered = ALL.iter().all(|limit| {
        let Ok(name) = CString::new(limit.name) else {
            return false;
        };
        // SAFETY: the context is alive, the server copies the name, and the limit is a static.
        let status = unsafe {
            register(
                ctx.as_ptr(),
                name.as_ptr(),
                limit.get(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                MIN,
                MAX,
                Some(get),
                Some(set),
                None,
                std::ptr::from_ref::<Limit>(limit).cast_mut().cast(),
            )
        };
        status == raw::REDISMODULE_OK as c_int
    });
    // SAFETY: the context is alive.
    registered && unsafe { load(ctx.as_ptr()) } == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get(_name: *const c_char, limit: *mut c_void) -> c_longlong {
    // SAFETY: what `register` passed: a static.
    unsafe { limit.cast::<Limit>().as_ref() }.map_or(0, Limit::get)
}

unsafe extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    limit: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: what `register` passed: a static.
    let limit = unsafe { limit.cast::<Limit>().as_ref() };
    // The server has checked the bounds already, and says so itself when they are broken.
    if limit.is_some_and(|limit| limit.set(value)) {
        raw::REDISMODULE_OK as c_int
    } else {
        raw::REDISMODULE_ERR as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> bool {
        read_arguments(line.split(' ').filter(|w| !w.is_empty()).map(str::as_bytes))
    }

    #[test]
    fn arguments_are_pairs_in_bounds() {
        assert!(read(""));
        assert!(read("max-waiters 5 MAX-WAITERS-PER-KEY 1000000"));
        for bad in [
            "max-waiters",
            "max-waiters x",
            "max-waiters -1",
            "max-waiters 1000001",
            "max-waiters 1 max-waiters 2",
            "waiters 1",
            "5",
        ] {
            assert!(!read(bad), "{bad}");
        }
    }
}
