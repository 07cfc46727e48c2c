//! Settings: load arguments on every server, and CONFIG GET / SET / REWRITE from 7.0 on.
//!
//! ```text
//! loadmodule libredis_lock.so [max-waiters-per-key N] [max-waiters N] [max-absent N] [max-keep ms] [max-waiters-share percent]
//!     [max-waiting-bytes bytes] [max-ttl ms] [guard off|restart|failover|quorum] [guard-slack ms]
//!     [guard-members N] [guard-fresh ms] [guard-drift N]
//!     [replicate-in-place yes|no] [deadlock-detection yes|no]
//! ```

use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::limits::{self, Choice, ConfigLimit, ALL, GUARD};
use crate::command::integer;
use crate::server::api::{call, Context};

/// The log line after the one that says which argument is wrong.
pub(in crate::server) const BAD_ARGUMENTS: &CStr =
    c"bad arguments: expected [max-waiters-per-key N] [max-waiters N] [replicate-in-place yes|no] [deadlock-detection yes|no] with N from 0 to 1000000, [max-absent N] [max-keep ms] [max-waiters-share percent] [max-waiting-bytes bytes] [max-ttl ms] [guard off|restart|failover|quorum] [guard-slack ms] [guard-members N] [guard-fresh ms] [guard-drift N]";

/// A setting with the value yes or no.
#[derive(Debug)]
pub(in crate::server) struct Switch {
    name: &'static CStr,
    is_on: AtomicBool,
}

/// Whether effects are replicated in place of the client's words, on servers where that is tested
/// ([`crate::server::replication::propagation`]).
pub(in crate::server) static REPLICATE_IN_PLACE: Switch = Switch::new(c"replicate-in-place", true);

/// Whether a wait that would close a cycle of waits is refused (`engine/deadlock.rs`).
pub(in crate::server) static DEADLOCK_DETECTION: Switch = Switch::new(c"deadlock-detection", true);

static SWITCHES: [&Switch; 2] = [&REPLICATE_IN_PLACE, &DEADLOCK_DETECTION];

impl Switch {
    const fn new(name: &'static CStr, default: bool) -> Self {
        Self {
            name,
            is_on: AtomicBool::new(default),
        }
    }

    pub(in crate::server) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

/// Any of the settings.
#[derive(Clone, Copy)]
enum Setting {
    Limit(&'static ConfigLimit),
    Switch(&'static Switch),
    Choice(&'static Choice),
}

impl Setting {
    fn all() -> impl Iterator<Item = Self> {
        let limits = ALL.iter().map(|limit| Self::Limit(limit));
        let switches = SWITCHES.iter().map(|switch| Self::Switch(switch));
        limits.chain(switches).chain([Self::Choice(&GUARD)])
    }

    const fn name(self) -> &'static CStr {
        match self {
            Self::Limit(limit) => limit.name,
            Self::Switch(switch) => switch.name,
            Self::Choice(choice) => choice.name,
        }
    }

    /// Sets it to a value given as text.
    ///
    /// # Errors
    /// If the value is not valid; the error says why.
    fn read(self, text: &[u8]) -> Result<(), &'static CStr> {
        match self {
            Self::Limit(limit) => {
                let value = integer(text).and_then(|value| i64::try_from(value).ok());
                let is_set = value.is_some_and(|value| limit.set(value));
                is_set.then_some(()).ok_or(limit.range)
            }
            Self::Switch(switch) => {
                let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
                if !is(b"yes") && !is(b"no") {
                    return Err(c"its value is neither yes nor no");
                }
                switch.set(is(b"yes"));
                Ok(())
            }
            Self::Choice(choice) => {
                let is = |word: &&CStr| text.eq_ignore_ascii_case(word.to_bytes());
                let number = choice.words.iter().position(is);
                let number = number.and_then(|number| i64::try_from(number).ok());
                choice.set(number.ok_or(choice.why)?);
                Ok(())
            }
        }
    }
}

/// Which load argument is wrong, and why.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct BadArgument {
    /// The name of the setting, or a text in its place if there is no such setting.
    pub(in crate::server) of: &'static CStr,
    pub(in crate::server) why: &'static CStr,
}

/// Reads the load arguments: pairs of a setting and its value, each setting at most once.
pub(in crate::server) fn read_arguments<'a>(
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), BadArgument> {
    let mut seen: Vec<&CStr> = Vec::new();
    while let Some(name) = args.next() {
        let known = Setting::all().find(|one| name.eq_ignore_ascii_case(one.name().to_bytes()));
        let setting = known.ok_or(BadArgument {
            of: c"unknown argument",
            why: c"there is no setting of this name",
        })?;
        let of = setting.name();
        if seen.contains(&of) {
            let why = c"it is given twice";
            return Err(BadArgument { of, why });
        }
        let why = c"it has no value";
        let text = args.next().ok_or(BadArgument { of, why })?;
        setting.read(text).map_err(|why| BadArgument { of, why })?;
        seen.push(of);
    }
    match limits::contradiction() {
        Some(why) => Err(BadArgument {
            of: c"bad settings",
            why,
        }),
        None => Ok(()),
    }
}

/// Registers the settings for CONFIG, on servers that support it for modules. The load arguments
/// become the defaults, which the configuration file and MODULE LOADEX override.
pub(in crate::server) fn register(ctx: Context<'_>) -> bool {
    // SAFETY: the static is not written after the load.
    let Some(load) = (unsafe { raw::RedisModule_LoadConfigs }) else {
        return true;
    };
    let limits = ALL.iter().all(|limit| register_limit(ctx, limit));
    let switches = SWITCHES.iter().all(|switch| register_switch(ctx, switch));
    let all = limits && switches && register_choice(ctx, &GUARD);
    // SAFETY: the context is alive.
    all && unsafe { load(ctx.as_ptr()) } == raw::REDISMODULE_OK as c_int
}

fn register_limit(ctx: Context<'_>, limit: &'static ConfigLimit) -> bool {
    // SAFETY: the static is not written after the load.
    let Some(register) = (unsafe { raw::RedisModule_RegisterNumericConfig }) else {
        return true;
    };
    // SAFETY: the context is alive, the server copies the name, and the limit is a static.
    let status = unsafe {
        register(
            ctx.as_ptr(),
            limit.name.as_ptr(),
            limit.get(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            limit.min,
            limit.max,
            Some(get),
            Some(set),
            Some(apply),
            std::ptr::from_ref(limit).cast_mut().cast(),
        )
    };
    status == raw::REDISMODULE_OK as c_int
}

fn register_switch(ctx: Context<'_>, switch: &'static Switch) -> bool {
    // SAFETY: the static is not written after the load.
    let Some(register) = (unsafe { raw::RedisModule_RegisterBoolConfig }) else {
        return true;
    };
    // SAFETY: the context is alive, the server copies the name, and the switch is a static.
    let status = unsafe {
        register(
            ctx.as_ptr(),
            switch.name.as_ptr(),
            switch.is_on().into(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            Some(get_switch),
            Some(set_switch),
            None,
            std::ptr::from_ref(switch).cast_mut().cast(),
        )
    };
    status == raw::REDISMODULE_OK as c_int
}

fn register_choice(ctx: Context<'_>, choice: &'static Choice) -> bool {
    // SAFETY: the static is not written after the load.
    let Some(register) = (unsafe { raw::RedisModule_RegisterEnumConfig }) else {
        return true;
    };
    let mut words = choice.words.map(CStr::as_ptr);
    let numbers = [0, 1, 2, 3];
    // SAFETY: the context is alive, the server copies the name, the words and the numbers, of which
    // there are as many as it is told, and the choice is a static.
    let status = unsafe {
        register(
            ctx.as_ptr(),
            choice.name.as_ptr(),
            c_int::try_from(choice.get()).unwrap_or_default(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            words.as_mut_ptr(),
            numbers.as_ptr(),
            c_int::try_from(words.len()).unwrap_or_default(),
            Some(get_choice),
            Some(set_choice),
            Some(apply),
            std::ptr::from_ref(choice).cast_mut().cast(),
        )
    };
    status == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_choice(_name: *const c_char, choice: *mut c_void) -> c_int {
    // SAFETY: what `register_choice` passed: a static.
    let choice = unsafe { choice.cast::<Choice>().as_ref() };
    choice.map_or(0, |choice| {
        c_int::try_from(choice.get()).unwrap_or_default()
    })
}

unsafe extern "C" fn set_choice(
    _name: *const c_char,
    value: c_int,
    choice: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: what `register_choice` passed: a static.
    if let Some(choice) = unsafe { choice.cast::<Choice>().as_ref() } {
        choice.set(value.into());
    }
    raw::REDISMODULE_OK as c_int
}

/// All settings of one CONFIG SET have their new values, which may contradict each other. The event
/// that follows tells the machine of them.
unsafe extern "C" fn apply(
    _ctx: *mut raw::RedisModuleCtx,
    _setting: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    if let Some(why) = limits::contradiction() {
        let text = why.to_bytes();
        // SAFETY: the server passed where the text is to be, and frees it. It copies the bytes.
        unsafe {
            *error = call!(RedisModule_CreateString(
                std::ptr::null_mut(),
                text.as_ptr().cast(),
                text.len()
            ));
        }
        return raw::REDISMODULE_ERR as c_int;
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_switch(_name: *const c_char, switch: *mut c_void) -> c_int {
    // SAFETY: what `register_switch` passed: a static.
    unsafe { switch.cast::<Switch>().as_ref() }.map_or(0, |switch| switch.is_on().into())
}

unsafe extern "C" fn set_switch(
    _name: *const c_char,
    value: c_int,
    switch: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: what `register_switch` passed: a static.
    if let Some(switch) = unsafe { switch.cast::<Switch>().as_ref() } {
        switch.set(value != 0);
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get(_name: *const c_char, limit: *mut c_void) -> c_longlong {
    // SAFETY: what `register_limit` passed: a static.
    unsafe { limit.cast::<ConfigLimit>().as_ref() }.map_or(0, ConfigLimit::get)
}

unsafe extern "C" fn set(
    _name: *const c_char,
    value: c_longlong,
    limit: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: what `register_limit` passed: a static.
    let limit = unsafe { limit.cast::<ConfigLimit>().as_ref() };
    // The server has already checked the bounds, and reports a value outside of them itself.
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
    fn the_text_of_each_limit_names_its_bounds() {
        for limit in ALL {
            let bounds = format!("from {} to {}", limit.min, limit.max);
            assert!(limit.range.to_str().unwrap().ends_with(&bounds), "{bounds}");
            assert!((limit.min..=limit.max).contains(&limit.get()));
        }
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
            ("max-waiters", c"max-waiters", "no value"),
            ("max-waiters x", c"max-waiters", "not an integer"),
            ("max-waiters -1", c"max-waiters", "not an integer"),
            ("max-waiters 007", c"max-waiters", "not an integer"),
            ("max-waiters 1000001", c"max-waiters", "not an integer"),
            ("max-keep 3600001", c"max-keep", "3600000"),
            ("max-waiters-share 0", c"max-waiters-share", "1 to 100"),
            ("max-waiters-share 101", c"max-waiters-share", "1 to 100"),
            ("max-waiters 1 max-waiters 2", c"max-waiters", "twice"),
            ("waiters 1", c"unknown argument", "no setting"),
            ("5", c"unknown argument", "no setting"),
            ("replicate-in-place", c"replicate-in-place", "no value"),
            ("replicate-in-place 1", c"replicate-in-place", "neither"),
            ("deadlock-detection on", c"deadlock-detection", "neither"),
        ] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.of, of, "{bad}");
            assert!(error.why.to_str().unwrap().contains(why), "{bad}");
        }
    }
}
