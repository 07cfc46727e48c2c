//! Settings: load arguments, and CONFIG GET / SET / REWRITE.

use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::ptr;

use redis_lock_core::engine::printable::escaped;
use redis_module::raw;

use super::limits::{self, GUARD, LIMITS};
use super::setting::{Setting, Values};
use crate::server::api::{call, Context};

/// The log line after the one that says which argument is wrong.
pub(in crate::server) const BAD_ARGUMENTS: &CStr =
    c"bad arguments: expected [max-waiters-per-key N] [max-waiters N] [replicate-in-place yes|no] [deadlock-detection yes|no] with N from 0 to 1000000, [max-absent N] [max-keep ms] [max-waiters-share percent] [max-waiting-bytes bytes] [max-ttl ms] [guard off|restart|failover|quorum] [guard-slack ms] [guard-members N] [guard-fresh ms]";

/// Whether effects are replicated in place of the client's words, on servers where that is tested
/// ([`crate::server::replication::propagation`]).
pub(in crate::server) static REPLICATE_IN_PLACE: Setting = Setting::switch(c"replicate-in-place");

/// Whether a wait that would close a cycle of waits is refused (`engine/deadlock.rs`).
pub(in crate::server) static DEADLOCK_DETECTION: Setting = Setting::switch(c"deadlock-detection");

fn all() -> impl Iterator<Item = &'static Setting> {
    let others = [&REPLICATE_IN_PLACE, &DEADLOCK_DETECTION, &GUARD];
    LIMITS.into_iter().chain(others)
}

/// Reads the load arguments: pairs of a setting and its value, each setting at most once. An error
/// says which argument is wrong, and why.
pub(in crate::server) fn read_arguments<'a>(
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), String> {
    // With musl the settings of a load that was refused are there still.
    all().for_each(Setting::reset);
    let mut seen: Vec<&CStr> = Vec::new();
    while let Some(name) = args.next() {
        let known = all().find(|one| name.eq_ignore_ascii_case(one.name.to_bytes()));
        let setting = known.ok_or_else(|| {
            let name = escaped(name, 64);
            format!("unknown argument '{name}': there is no setting of this name")
        })?;
        let wrong = |why: &str| format!("{}: {why}", setting.name.to_string_lossy());
        if seen.contains(&setting.name) {
            return Err(wrong("it is given twice"));
        }
        let text = args.next().ok_or_else(|| wrong("it has no value"))?;
        if !setting.read(text) {
            return Err(wrong(&setting.why()));
        }
        seen.push(setting.name);
    }
    Ok(())
}

/// Registers the settings for CONFIG. The load arguments become the defaults, which the
/// configuration file and MODULE LOADEX override.
pub(in crate::server) fn register(ctx: Context<'_>) -> bool {
    let all = all().all(|setting| register_one(ctx, setting));
    // SAFETY: the context is alive.
    all && unsafe { call!(RedisModule_LoadConfigs(ctx.as_ptr())) } == raw::REDISMODULE_OK as c_int
}

fn register_one(ctx: Context<'_>, setting: &'static Setting) -> bool {
    let (ctx, name, flags) = (
        ctx.as_ptr(),
        setting.name.as_ptr(),
        raw::REDISMODULE_CONFIG_DEFAULT,
    );
    let (value, of) = (setting.get(), ptr::from_ref(setting).cast_mut().cast());
    let number = c_int::try_from(value).unwrap_or_default();
    // SAFETY: the context is alive, the server copies the name, the words and the numbers, of which
    // there are as many as it is told, and the setting is a static.
    let status = unsafe {
        match setting.values {
            Values::Numbers(min, max) => call!(RedisModule_RegisterNumericConfig(
                ctx,
                name,
                value,
                flags,
                min,
                max,
                Some(get_number),
                Some(set_number),
                Some(apply),
                of,
            )),
            Values::YesOrNo => call!(RedisModule_RegisterBoolConfig(
                ctx,
                name,
                number,
                flags,
                Some(get_word),
                Some(set_word),
                None,
                of,
            )),
            Values::Words(words) => {
                let mut names = words.map(CStr::as_ptr);
                call!(RedisModule_RegisterEnumConfig(
                    ctx,
                    name,
                    number,
                    flags,
                    names.as_mut_ptr(),
                    [0, 1, 2, 3].as_ptr(),
                    4,
                    Some(get_word),
                    Some(set_word),
                    Some(apply),
                    of,
                ))
            }
        }
    };
    status == raw::REDISMODULE_OK as c_int
}

/// All settings of one CONFIG SET have their new values, which may contradict each other. The event
/// that follows tells the machine of them.
unsafe extern "C" fn apply(
    _ctx: *mut raw::RedisModuleCtx,
    _setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    if let Some(why) = limits::contradiction() {
        // SAFETY: the server passed where the text is to be, and frees it. It copies the bytes.
        unsafe {
            *error = call!(RedisModule_CreateString(
                ptr::null_mut(),
                why.as_ptr().cast(),
                why.len()
            ));
        }
        return raw::REDISMODULE_ERR as c_int;
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_number(_name: *const c_char, setting: *mut c_void) -> c_longlong {
    // SAFETY: what `register_one` passed: a static.
    unsafe { setting.cast::<Setting>().as_ref() }.map_or(0, Setting::get)
}

unsafe extern "C" fn get_word(name: *const c_char, setting: *mut c_void) -> c_int {
    // SAFETY: as the server has passed them.
    c_int::try_from(unsafe { get_number(name, setting) }).unwrap_or_default()
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: what `register_one` passed: a static.
    let setting = unsafe { setting.cast::<Setting>().as_ref() };
    // The server has already checked the bounds, and reports a value outside of them itself.
    match setting.is_some_and(|setting| setting.set(value)) {
        true => raw::REDISMODULE_OK as c_int,
        false => raw::REDISMODULE_ERR as c_int,
    }
}

unsafe extern "C" fn set_word(
    name: *const c_char,
    value: c_int,
    setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: as the server has passed them.
    unsafe { set_number(name, value.into(), setting, error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(), String> {
        read_arguments(line.split(' ').filter(|w| !w.is_empty()).map(str::as_bytes))
    }

    #[test]
    fn arguments_are_pairs_in_bounds() {
        assert_eq!(read(""), Ok(()));
        assert_eq!(read("max-waiters 5 MAX-WAITERS-PER-KEY 1000000"), Ok(()));
        assert_eq!(read("replicate-in-place NO"), Ok(()));
        assert!(!REPLICATE_IN_PLACE.is_on());
        assert_eq!(read("Replicate-In-Place yes max-waiters 5"), Ok(()));
        assert!(REPLICATE_IN_PLACE.is_on());
        assert!(DEADLOCK_DETECTION.is_on());
        assert_eq!(read("Deadlock-Detection NO"), Ok(()));
        assert!(!DEADLOCK_DETECTION.is_on());
        assert_eq!(read("deadlock-detection yes"), Ok(()));
        for (bad, of, why) in [
            ("max-waiters", "max-waiters", "no value"),
            ("max-waiters x", "max-waiters", "not an integer"),
            ("max-waiters -1", "max-waiters", "not an integer"),
            ("max-waiters 007", "max-waiters", "not an integer"),
            ("max-waiters 1000001", "max-waiters", "not an integer"),
            ("max-keep 3600001", "max-keep", "3600000"),
            ("max-waiters-share 0", "max-waiters-share", "1 to 100"),
            ("max-waiters-share 101", "max-waiters-share", "1 to 100"),
            ("max-waiters 1 max-waiters 2", "max-waiters", "twice"),
            ("waiters 1", "unknown argument 'waiters'", "no setting"),
            ("5", "unknown argument '5'", "no setting"),
            ("replicate-in-place", "replicate-in-place", "no value"),
            ("replicate-in-place 1", "replicate-in-place", "neither"),
            ("deadlock-detection on", "deadlock-detection", "neither"),
        ] {
            let error = read(bad).unwrap_err();
            let (about, text) = error.split_once(": ").unwrap();
            assert_eq!(about, of, "{bad}");
            assert!(text.contains(why), "{bad}");
        }
    }
}
