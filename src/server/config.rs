//! Settings: load arguments on every server, and CONFIG GET / SET / REWRITE from 7.0 on.
//!
//! ```text
//! loadmodule libredis_lock.so [max-waiters-per-key N] [max-waiters N]
//! ```

use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};

use redis_module::raw;

use super::api::Context;
use super::waiting::limits::{Limit, ALL, MAX, MIN};
use crate::command::integer;

/// What the log says when the arguments cannot be taken, after what was wrong with one of them.
pub(super) const BAD_ARGUMENTS: &CStr =
    c"bad arguments: expected [max-waiters-per-key N] [max-waiters N] with N from 0 to 1000000";

/// What is wrong with a load argument: which setting it was for, and why it was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadArgument {
    /// The name of the setting, or what stands for a name that is none.
    pub(super) of: &'static CStr,
    pub(super) why: &'static CStr,
}

/// Takes the load arguments: pairs of a setting and its value, in its bounds, each at most once.
pub(super) fn read_arguments<'a>(
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), BadArgument> {
    let mut seen: Vec<&CStr> = Vec::new();
    while let Some(name) = args.next() {
        let known = ALL
            .iter()
            .find(|limit| name.eq_ignore_ascii_case(limit.name.to_bytes()));
        let limit = known.ok_or(BadArgument {
            of: c"unknown argument",
            why: c"it is the name of no setting",
        })?;
        let refuse = |why| BadArgument {
            of: limit.name,
            why,
        };
        if seen.contains(&limit.name) {
            return Err(refuse(c"it is given twice"));
        }
        let text = args.next().ok_or(refuse(c"it has no value"))?;
        let value = integer(text).and_then(|value| i64::try_from(value).ok());
        if !value.is_some_and(|value| limit.set(value)) {
            return Err(refuse(c"its value is no integer from 0 to 1000000"));
        }
        seen.push(limit.name);
    }
    Ok(())
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
        // SAFETY: the context is alive, the server copies the name, and the limit is a static.
        let status = unsafe {
            register(
                ctx.as_ptr(),
                limit.name.as_ptr(),
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

    fn read(line: &str) -> Result<(), BadArgument> {
        read_arguments(line.split(' ').filter(|w| !w.is_empty()).map(str::as_bytes))
    }

    #[test]
    fn arguments_are_pairs_in_bounds() {
        assert_eq!(read(""), Ok(()));
        assert_eq!(read("max-waiters 5 MAX-WAITERS-PER-KEY 1000000"), Ok(()));
        for (bad, of, why) in [
            ("max-waiters", c"max-waiters", "no value"),
            ("max-waiters x", c"max-waiters", "no integer"),
            ("max-waiters -1", c"max-waiters", "no integer"),
            ("max-waiters 007", c"max-waiters", "no integer"),
            ("max-waiters 1000001", c"max-waiters", "no integer"),
            ("max-waiters 1 max-waiters 2", c"max-waiters", "twice"),
            ("waiters 1", c"unknown argument", "no setting"),
            ("5", c"unknown argument", "no setting"),
        ] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.of, of, "{bad}");
            assert!(error.why.to_str().unwrap().contains(why), "{bad}");
        }
    }
}
